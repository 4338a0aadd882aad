/* The qualified names of functions, as LlamaMLP.forward, and whether they are a Function's
 * forward: from the lines of code that a recording has. */
#ifndef ML_CODE_NAMES_H
#define ML_CODE_NAMES_H

#include "base/base.h"
#include "recording/recording.h"

typedef struct ml_code_names {
    const ml_recording *recording; /* borrowed */
    ml_intern lines;               /* by index into its lines of code */
} ml_code_names;

/* RECORDING is borrowed and outlives the names.  0, or ML_ENOMEM with nothing to free. */
int ml_code_names_init(ml_code_names *names, const ml_recording *recording);
void ml_code_names_fini(ml_code_names *names);

/* String: the function of FRAME with those around it, or its bare name where the recording
 * does not know them. */
uint32_t ml_code_name(const ml_code_names *names, uint32_t frame);
/* The same, but 0, the empty string, where its file was not read for functions: then the
 * other may lack those around it. */
uint32_t ml_code_read_name(const ml_code_names *names, uint32_t frame);
/* Whether FRAME is of a torch.autograd.Function's forward: enum ml_code_forward. */
uint8_t ml_code_forward(const ml_code_names *names, uint32_t frame);

#endif
