/* This process and its machine, as the system reports them. */
#ifndef ML_THIS_PROCESS_H
#define ML_THIS_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#define ML_BOOT_BYTES 16

int ml_this_process_id(void);
/* Its resident set in bytes; UINT64_MAX: unknown. */
uint64_t ml_this_process_resident(void);

/* The machine's name, cut to BYTES with its NUL; empty: none. */
void ml_this_process_host(char *name, size_t bytes);
/* The id of the machine's boot; zeros: unknown. */
void ml_this_process_boot(unsigned char boot[ML_BOOT_BYTES]);

#endif
