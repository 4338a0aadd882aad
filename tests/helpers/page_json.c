/* Prints the viewer's page data of a snapshot: page_json FILE.pickle > data.json */
#include <stdio.h>

#include "base.h"
#include "page.h"
#include "snapshot_file.h"

static int
put_page(const ml_recording *recording)
{
    ml_buffer out = {0};
    int code = ml_page_write(recording, &out);
    if (code == 0) {
        fwrite(out.bytes, 1, out.length, stdout);
    }
    ml_buffer_fini(&out);
    return code;
}

int
main(int argc, char **argv)
{
    return run_on_snapshot(argc, argv, put_page);
}
