/* The whole C test framework: a test is a void function that RUN calls; a failed CHECK
 * prints both values and leaves the test.  It does not use assert(), so NDEBUG changes
 * nothing.  End main with `return TEST_RESULT();`. */
#ifndef ML_TEST_H
#define ML_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_passed;
static int test_failed;
static int test_broken; /* of the running test */

#define CHECK_FAIL(...) \
    do { \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr); \
        test_broken = 1; \
        return; \
    } while (0)

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            CHECK_FAIL("%s is false", #condition); \
        } \
    } while (0)

/* Signed integers; CHECK_UINT for values above INT64_MAX. */
#define CHECK_INT(got, want) \
    do { \
        int64_t got_ = (int64_t)(got), want_ = (int64_t)(want); \
        if (got_ != want_) { \
            CHECK_FAIL("%s is %lld, not %lld", #got, (long long)got_, \
                       (long long)want_); \
        } \
    } while (0)

#define CHECK_UINT(got, want) \
    do { \
        uint64_t got_ = (uint64_t)(got), want_ = (uint64_t)(want); \
        if (got_ != want_) { \
            CHECK_FAIL("%s is %llu, not %llu", #got, (unsigned long long)got_, \
                       (unsigned long long)want_); \
        } \
    } while (0)

#define CHECK_PTR(got, want) \
    do { \
        const void *got_ = (got), *want_ = (want); \
        if (got_ != want_) { \
            CHECK_FAIL("%s is %p, not %p", #got, got_, want_); \
        } \
    } while (0)

#define CHECK_STR(got, want) \
    do { \
        const char *got_ = (got), *want_ = (want); \
        if (got_ == NULL || strcmp(got_, want_) != 0) { \
            CHECK_FAIL("%s is \"%s\", not \"%s\"", #got, \
                       got_ == NULL ? "(NULL)" : got_, want_); \
        } \
    } while (0)

/* LENGTH bytes against a C string. */
#define CHECK_TEXT(got, length, want) \
    do { \
        const char *got_ = (got), *want_ = (want); \
        size_t length_ = (size_t)(length); \
        if (length_ != strlen(want_) || memcmp(got_, want_, length_) != 0) { \
            CHECK_FAIL("%s is \"%.*s\", not \"%s\"", #got, (int)length_, got_, want_); \
        } \
    } while (0)

/* The thread sanitizer makes a loop fifty times as long.  It sees nothing in what one
 * thread does, and in what several do it needs few rounds. */
#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif
/* What either sanitizer sees in a loop, it sees in fewer turns. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

#define RUN_LONG_IN_ONE_THREAD(test) \
    do { \
        if (UNDER_TSAN) { \
            puts("skip " #test ": one thread, nothing for the thread sanitizer"); \
        } \
        else { \
            RUN(test); \
        } \
    } while (0)

#define RUN(test) \
    do { \
        test_broken = 0; \
        test(); \
        if (test_broken) { \
            fprintf(stderr, "FAILED %s\n", #test); \
            test_failed++; \
        } \
        else { \
            test_passed++; \
        } \
    } while (0)

#define TEST_RESULT() \
    (printf("%d passed, %d failed\n", test_passed, test_failed), test_failed != 0)

#endif
