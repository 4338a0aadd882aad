/* Files read at any place. */
#define _GNU_SOURCE 1 /* mkstemp */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/infile.h"
#include "memlab.h"
#include "test.h"

static void
test_reading_at_any_place(void)
{
    char path[] = "/tmp/memlab-test-XXXXXX", got[4];
    int made = mkstemp(path);
    CHECK(made >= 0);
    CHECK_INT(write(made, "0123456789", 10), 10);
    int file = ml_infile_open(path);
    unlink(path);
    CHECK(file >= 0);
    uint64_t bytes;
    CHECK_INT(ml_infile_bytes(file, &bytes), 0);
    CHECK_UINT(bytes, 10);
    CHECK_INT(ml_infile_read(file, 6, got, 4), 0);
    CHECK_TEXT(got, 4, "6789");
    CHECK_INT(ml_infile_read(file, 1, got, 2), 0);
    CHECK_TEXT(got, 2, "12");
    /* Some of the bytes, or none, are not all of them. */
    CHECK_INT(ml_infile_read(file, 7, got, 4), ML_EIO);
    CHECK_INT(ml_infile_read(file, 10, got, 1), ML_EIO);
    CHECK_INT(write(made, "ab", 2), 2);
    CHECK_INT(ml_infile_bytes(file, &bytes), 0);
    CHECK_UINT(bytes, 12);
    ml_infile_close(file);
    CHECK_INT(ml_infile_read(file, 0, got, 1), ML_EIO);
    CHECK_INT(ml_infile_bytes(file, &bytes), ML_EIO);
    CHECK_INT(errno, EBADF);
    close(made);
}

static void
test_a_file_that_is_not_there(void)
{
    CHECK_INT(ml_infile_open("/nowhere/at/all"), -1);
    CHECK_INT(errno, ENOENT);
    ml_infile_close(-1);
}

int
main(void)
{
    RUN(test_reading_at_any_place);
    RUN(test_a_file_that_is_not_there);
    return TEST_RESULT();
}
