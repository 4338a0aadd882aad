/* The workspace of a convolution.
 *
 * Owns the measured workspaces, and the rule that extends them to other shapes. */
#ifndef ML_PHANTOM_WORKSPACE_H
#define ML_PHANTOM_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    ML_FORWARD,
    ML_INPUT_GRADIENT,
    ML_FILTER_GRADIENT
};

typedef struct {
    int direction;  /* number of those above */
    int dimensions; /* spatial */
    int64_t batch, inputs, outputs;
    int64_t filter_inputs; /* channels: fewer than `inputs` in a grouped convolution */
    int64_t taps;          /* elements of a filter's plane */
    int64_t plane, made;   /* elements of an input plane, of an output plane */
    int64_t stride;
    int64_t element; /* bytes */
    bool bfloat;     /* with `element` 2: not float16 */
    bool channels_last;
} ml_convolution;

/* The bytes of its workspace. */
int64_t ml_convolution_workspace(const ml_convolution *of);

#endif
