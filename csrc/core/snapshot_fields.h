/* Reading the fields of a snapshot: typed, range-checked, and with the place of what is
 * wrong.
 *
 * Owns the reader's state; knows types and limits but no schema.  Private to the
 * snapshot reader. */
#ifndef ML_SNAPSHOT_FIELDS_H
#define ML_SNAPSHOT_FIELDS_H

#include "snapshot_tables.h"

struct ml_pending; /* a segment before its blocks are read */

typedef struct ml_reader {
    ml_tables tables;
    ml_recording *recording; /* owned until success */
    ml_read_error *error;
    struct ml_pending *pending; /* owned */
    size_t pending_count;
    /* Where we are, for error texts: outer[outer_index]inner[inner_index]. */
    const char *outer;
    size_t outer_index;
    const char *inner;
    size_t inner_index;
} ml_reader;

void ml_reader_enter(ml_reader *r, const char *outer, size_t index);
void ml_reader_enter_inner(ml_reader *r, const char *inner, size_t index);
void ml_reader_leave(ml_reader *r);

/* Each of these fills in the error, with the place before the text, and returns CODE. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int
ml_reader_fail(ml_reader *r, int code, const char *format, ...);
/* For errors that are not about one value. */
int ml_reader_fail_code(ml_reader *r, int code);

/* An array of COUNT items for the recording, charged and zeroed; NULL for none. */
int ml_reader_column(ml_reader *r, size_t count, size_t size, void **out);
/* Makes sure that the recording will have COUNT devices. */
int ml_reader_need_devices(ml_reader *r, size_t count);

/* VALUE as what KEY must be: 0 or an error that names KEY. */
/* A count or a size in bytes. */
int ml_reader_natural(ml_reader *r, ml_value value, const char *key, uint64_t *out);
/* An address or stream handle: 64 bits, which some writers show as signed. */
int ml_reader_address(ml_reader *r, ml_value value, const char *key, uint64_t *out);
int ml_reader_string(ml_reader *r, ml_value value, const char *key, uint32_t *out);
int ml_reader_stack(ml_reader *r, ml_value value, uint32_t *out);
int ml_reader_list(ml_reader *r, ml_value value, const char *key, const ml_array **out);
int ml_reader_dict(ml_reader *r, ml_value value, const char *key, const ml_array **out);
int ml_reader_pool(ml_reader *r, ml_value value, const char *key, uint64_t pool[2]);

#endif
