/* A map from addresses to small numbers. */
#ifndef ML_PY_ADDRESSES_H
#define ML_PY_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ml_address {
    uint64_t address; /* 0: a free place */
    size_t number;
} ml_address;

/* Empty if zeroed. */
typedef struct ml_addresses {
    ml_address *places; /* owned */
    size_t mask;
    size_t count;
} ml_addresses;

void ml_addresses_fini(ml_addresses *map);
/* Makes room for COUNT addresses.  0 or ML_ENOMEM. */
int ml_addresses_reserve(ml_addresses *map, size_t count);
/* The number of ADDRESS, which is not 0; NULL: it has none. */
size_t *ml_addresses_find(const ml_addresses *map, uint64_t address);
/* Gives ADDRESS, which is not 0, the NUMBER unless it has one.  1 if it had none, else
 * 0; or ML_ENOMEM. */
int ml_addresses_add(ml_addresses *map, uint64_t address, size_t number);

#endif
