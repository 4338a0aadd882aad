/* The abilities of this machine's processor, known only at run time, because memlab is
 * compiled for all of its kind. */
#ifndef ML_PROCESSOR_H
#define ML_PROCESSOR_H

#include <stdbool.h>

/* Whether it has the instruction for CRC-32C. */
bool ml_processor_has_crc32c(void);

#endif
