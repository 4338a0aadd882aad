/* What is wrong with a file that is read. */
#ifndef ML_READ_ERROR_H
#define ML_READ_ERROR_H

#include <stddef.h>

/* The error in a file.  TEXT is a whole clause without the file's name. */
typedef struct ml_read_error {
    int code;      /* ML_E* */
    size_t offset; /* byte of the file, where that is known */
    char text[240];
} ml_read_error;

/* Fills ERROR, unless it is NULL, and returns CODE. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
int
ml_read_fail(ml_read_error *error, int code, size_t offset, const char *format, ...);

#endif
