/* Modules that repeat: their paths differ in one number, as transformer.h.0 and
 * transformer.h.11, or encoder_layer_0 and encoder_layer_11.
 *
 * Finds the instance and the family of a path.  A path with several numbers is in
 * several families, one for each number. */
#ifndef ML_MODULE_REPEATS_H
#define ML_MODULE_REPEATS_H

#include "recording/recording.h"

/* Numbers of a path that count, from the left. */
#define ML_REPEATS_LEVELS 3
/* The most instances and families; further paths belong to none. */
#define ML_REPEATS_MOST 4096

typedef struct ml_instance {
    ml_string path; /* up to and with the number; bytes borrowed of the recording */
    uint32_t family;
} ml_instance;

typedef struct ml_family {
    ml_string before;   /* path up to the number; borrowed */
    uint32_t instances; /* items */
    uint32_t first;     /* instance */
} ml_family;

typedef struct ml_repeats {
    ml_instance *instances; /* owned */
    size_t instance_count;
    size_t instance_capacity;
    ml_family *families; /* owned */
    size_t family_count;
    size_t family_capacity;
    uint32_t (*of)[ML_REPEATS_LEVELS]; /* owned; by string: 1 + instance, or 0 */
    uint8_t *seen;                     /* owned; by string */
} ml_repeats;

/* 0 or ML_ENOMEM. */
int ml_repeats_init(ml_repeats *repeats, const ml_recording *recording);
void ml_repeats_fini(ml_repeats *repeats);
/* Adds MODULE, a string of the recording.  0 or ML_ENOMEM. */
int ml_repeats_add(ml_repeats *repeats, const ml_recording *recording, uint32_t module);

/* 1 + the instance of FAMILY that contains MODULE, which was added; 0: none does. */
uint32_t ml_repeats_instance(const ml_repeats *repeats, uint32_t module,
                             uint32_t family);
/* The end of the first part of PATH, from FROM on, that is a number, or a name with one behind
 * its last "_", as encoder_layer_0; *NUMBER is the start of the number.  0: no part is. */
size_t ml_path_number(ml_string path, size_t from, size_t *number);

#endif
