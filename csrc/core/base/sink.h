/* The destination of a writer's bytes: a file, a buffer, Python. */
#ifndef ML_SINK_H
#define ML_SINK_H

#include <stddef.h>

/* Takes the next LENGTH bytes.  0 or ML_E*, which stops the writer. */
typedef int (*ml_sink)(void *context, const void *bytes, size_t length);

#endif
