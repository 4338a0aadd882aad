/* Tests with a recorder that is as in a program that has just begun. */
#ifndef ML_TEST_AFRESH_H
#define ML_TEST_AFRESH_H

#include "record/recorder.h"
#include "test.h"

/* RUN with a recorder of TEST's own, for which BEGIN returns 0.  What TEST leaves there is
 * freed; it may leave no recording under way. */
#define RUN_AFRESH(begin, test) \
    do { \
        if (begin() == 0) { \
            RUN(test); \
        } \
        else { \
            fprintf(stderr, "FAILED %s: %s\n", #test, ml_recorder_error()); \
            test_failed++; \
        } \
        ml_recorder_fini(); \
    } while (0)

#endif
