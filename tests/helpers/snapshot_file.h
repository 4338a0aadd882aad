/* A snapshot file as a recording, for programs whose one argument it is. */
#ifndef SNAPSHOT_FILE_H
#define SNAPSHOT_FILE_H

#include <stdio.h>
#include <stdlib.h>

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

/* What PUT makes of the recording in the file that ARGV names; the program's status. */
static int
run_on_snapshot(int argc, char **argv, int (*put)(const ml_recording *recording))
{
    size_t length = 0;
    char *bytes = argc == 2 ? read_whole(argv[1], &length) : NULL;
    if (bytes == NULL) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    if (ml_snapshot_read(bytes, length, &recording, &error) != 0) {
        fprintf(stderr, "%s: %s\n", argv[1], error.text);
        return 1;
    }
    int code = put(recording);
    if (code != 0) {
        fprintf(stderr, "%s\n", ml_strerror(code));
    }
    ml_recording_free(recording);
    free(bytes);
    return code != 0;
}

#endif
