/* Fills the error of a file.  See read_error.h. */
#include "base/read_error.h"

#include <stdarg.h>
#include <stdio.h>

int
ml_read_fail(ml_read_error *error, int code, size_t offset, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
        error->code = code;
        error->offset = offset;
    }
    return code;
}
