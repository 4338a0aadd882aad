/* Large tables in files without names, on a host that has little memory left. */
#define _GNU_SOURCE 1 /* setenv */

#include "base/system/spill.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/system/host_memory.h"
#include "test.h"

#define MIB ((size_t)1 << 20)

static uint64_t left_bytes;

static uint64_t
left(void)
{
    return left_bytes;
}

static void
begin(uint64_t bytes)
{
    left_bytes = bytes;
    ml_set_spill_left(left);
    ml_spill_begin();
}

static void
end(void)
{
    ml_set_spill_left(NULL);
    ml_set_memory(NULL);
}

/* KiB of this process that are in no file. */
static long
anonymous_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && kib < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "RssAnon:", 8) == 0) {
            kib = strtol(line + 8, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

/* A number that depends on the place I. */
static unsigned char
mark(size_t i)
{
    return (unsigned char)(i * 2654435761u >> 24);
}

static void
fill(unsigned char *table, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        table[i] = mark(i);
    }
}

static bool
is_filled(const unsigned char *table, size_t count)
{
    size_t same = 0;
    while (same < count && table[same] == mark(same)) {
        same++;
    }
    return same == count;
}

static void
test_a_table_that_memory_has_room_for_stays_in_it(void)
{
    begin(16 * 64 * MIB);
    void *table = ml_alloc(64 * MIB);
    CHECK(table != NULL);
    CHECK(!ml_spill_owns(table));
    ml_free(table);
    end();
}

static void
test_a_small_table_stays_in_memory(void)
{
    begin(0);
    void *table = ml_alloc(ML_SPILL_LEAST - 1);
    CHECK(table != NULL);
    CHECK(!ml_spill_owns(table));
    ml_free(table);
    end();
}

static void
test_a_table_of_more_than_a_sixteenth_takes_no_memory_of_the_process(void)
{
    begin(16 * 64 * MIB - 1);
    long before = anonymous_kib();
    unsigned char *table = ml_alloc(64 * MIB);
    CHECK(table != NULL);
    CHECK(ml_spill_owns(table));
    fill(table, 0, 64 * MIB);
    CHECK(is_filled(table, 64 * MIB));
    CHECK(before >= 0);
#ifndef __SANITIZE_THREAD__ /* it has notes of its own about each byte */
    CHECK(anonymous_kib() - before < 8 * 1024);
#endif
    ml_free(table);
    end();
}

static void
test_a_table_keeps_what_it_has_while_it_grows(void)
{
    begin(UINT64_MAX);
    unsigned char *table = ml_alloc(20 * MIB);
    CHECK(table != NULL);
    CHECK(!ml_spill_owns(table));
    fill(table, 0, 20 * MIB);
    left_bytes = 16 * 20 * MIB;
    table = ml_realloc(table, 30 * MIB);
    CHECK(table != NULL);
    CHECK(ml_spill_owns(table));
    CHECK(is_filled(table, 20 * MIB));
    fill(table, 20 * MIB, 30 * MIB);
    for (size_t mib = 45; mib < 160; mib += 20) {
        table = ml_realloc(table, mib * MIB);
        CHECK(table != NULL);
        CHECK(ml_spill_owns(table));
        CHECK(is_filled(table, 30 * MIB));
        table[mib * MIB - 1] = 1;
    }
    unsigned char *smaller = ml_realloc(table, 30 * MIB);
    CHECK(smaller == table);
    CHECK(is_filled(smaller, 30 * MIB));
    ml_free(smaller);
    CHECK(!ml_spill_owns(&left_bytes));
    end();
}

static void
test_zeros_are_zeros(void)
{
    begin(0);
    for (int again = 0; again < 2; again++) {
        unsigned char *table = ml_alloc_zeroed(32, MIB);
        CHECK(table != NULL);
        CHECK(ml_spill_owns(table));
        size_t zeros = 0;
        while (zeros < 32 * MIB && table[zeros] == 0) {
            zeros++;
        }
        CHECK_UINT(zeros, 32 * MIB);
        memset(table, 0xff, 32 * MIB);
        ml_free(table);
    }
    end();
}

/* The number of open files of this process. */
static int
open_files(void)
{
    int count = 0;
    for (int file = 0; file < 256; file++) {
        char path[32];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        count += access(path, F_OK) == 0;
    }
    return count;
}

static void
test_a_freed_table_leaves_no_file_open(void)
{
    begin(0);
    int before = open_files();
    void *table = ml_alloc(32 * MIB);
    CHECK(ml_spill_owns(table));
    table = ml_realloc(table, 64 * MIB);
    CHECK_INT(open_files(), before + 1);
    ml_free(table);
    CHECK_INT(open_files(), before);
    end();
}

static void
test_more_than_the_disk_has_comes_from_memory_or_not_at_all(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return; /* their malloc() ends a program that asks for so much */
#endif
    begin(0);
    unsigned char *table = ml_alloc(20 * MIB);
    CHECK(ml_spill_owns(table));
    fill(table, 0, 20 * MIB);
    /* No disk has a PiB, nor has memory: the table stays. */
    CHECK(ml_realloc(table, (size_t)1 << 50) == NULL);
    CHECK(is_filled(table, 20 * MIB));
    CHECK(ml_realloc(table, SIZE_MAX / 2) == NULL);
    CHECK(is_filled(table, 20 * MIB));
    CHECK(ml_alloc((size_t)1 << 50) == NULL);
    ml_free(table);
    end();
}

static void
test_a_folder_that_is_memory_is_passed_over(void)
{
    if (access("/dev/shm", W_OK) != 0) {
        return; /* no folder to pass over */
    }
    const char *before = getenv("TMPDIR");
    char *kept = before != NULL ? strdup(before) : NULL;
    setenv("TMPDIR", "/dev/shm", 1);
    begin(0);
    void *table = ml_alloc(32 * MIB);
    CHECK(table != NULL);
    /* The next folder, /var/tmp, is on a disk, or there is none. */
    if (ml_spill_owns(table)) {
        bool in_memory = false;
        for (int file = 0; file < 256; file++) {
            char path[32];
            char target[256];
            snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
            ssize_t length = readlink(path, target, sizeof(target) - 1);
            target[length > 0 ? length : 0] = '\0';
            in_memory |= strncmp(target, "/dev/shm/", 9) == 0;
        }
        CHECK(!in_memory);
    }
    ml_free(table);
    end();
    if (kept != NULL) {
        setenv("TMPDIR", kept, 1);
        free(kept);
    }
    else {
        unsetenv("TMPDIR");
    }
}

static void
test_a_forked_child_reads_the_table_and_frees_it_alone(void)
{
    begin(0);
    unsigned char *table = ml_alloc(20 * MIB);
    CHECK(ml_spill_owns(table));
    fill(table, 0, 20 * MIB);
    pid_t child = fork();
    if (child == 0) {
        bool same = is_filled(table, 20 * MIB);
        ml_free(table);
        _exit(same ? 0 : 1);
    }
    int status = 1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK(is_filled(table, 20 * MIB));
    ml_free(table);
    end();
}

static void
test_the_kernel_says_how_much_is_left(void)
{
    uint64_t bytes = ml_host_memory_left();
    CHECK(bytes > 0);
    /* A machine of 2026 has some, and none has an EiB. */
    CHECK(bytes == UINT64_MAX || bytes < (uint64_t)1 << 60);
}

int
main(void)
{
    RUN(test_a_table_that_memory_has_room_for_stays_in_it);
    RUN(test_a_small_table_stays_in_memory);
    RUN(test_a_table_of_more_than_a_sixteenth_takes_no_memory_of_the_process);
    RUN(test_a_table_keeps_what_it_has_while_it_grows);
    RUN(test_zeros_are_zeros);
    RUN(test_a_freed_table_leaves_no_file_open);
    RUN(test_more_than_the_disk_has_comes_from_memory_or_not_at_all);
    RUN(test_a_folder_that_is_memory_is_passed_over);
    RUN(test_a_forked_child_reads_the_table_and_frees_it_alone);
    RUN(test_the_kernel_says_how_much_is_left);
    return TEST_RESULT();
}
