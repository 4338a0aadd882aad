/* Prints the viewer's page data of a snapshot: page_json FILE.pickle > data.json */
#include <stdio.h>
#include <stdlib.h>

#include "base.h"
#include "page.h"
#include "snapshot_reader.h"

static char *
read_whole(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        return NULL;
    }
    long end = ftell(file);
    rewind(file);
    char *bytes = end < 0 ? NULL : malloc((size_t)end + 1);
    if (bytes != NULL) {
        *length = fread(bytes, 1, (size_t)end, file);
    }
    fclose(file);
    return bytes;
}

int
main(int argc, char **argv)
{
    size_t length = 0;
    char *bytes = argc == 2 ? read_whole(argv[1], &length) : NULL;
    if (bytes == NULL) {
        fprintf(stderr, "usage: page_json FILE\n");
        return 2;
    }
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    if (ml_snapshot_read(bytes, length, &recording, &error) != 0) {
        fprintf(stderr, "%s: %s\n", argv[1], error.text);
        return 1;
    }
    ml_buffer out = {0};
    int code = ml_page_write(recording, &out);
    if (code == 0) {
        fwrite(out.bytes, 1, out.length, stdout);
    }
    else {
        fprintf(stderr, "%s\n", ml_strerror(code));
    }
    ml_buffer_fini(&out);
    ml_recording_free(recording);
    free(bytes);
    return code != 0;
}
