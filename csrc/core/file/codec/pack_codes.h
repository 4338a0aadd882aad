/* The codes of the record of a memory event, for pack.c and unpack.c; docs/FORMAT.md
 * specifies the bytes.
 *
 * A record begins with a tag, the low four bits of its first byte.  A tag up to
 * ML_ACTION_OTHER is an event of that action. 24 bits of codes, with the tag, say how
 * each field was written; then come the fields in whole bytes, least first.  A field is
 * stored as one word, which the next field overlaps: that is faster than a loop over
 * bytes.
 *
 * Fields that change with the phase of a program rather than from event to event
 * (thread, stream, pool, ...) are the context, a record of its own before the event
 * that needs it.  Fields that few events have are also records of their own: the number
 * of the node made next while a node runs, and each of ML_SPARSE_COLUMNS. */
#ifndef ML_PACK_CODES_H
#define ML_PACK_CODES_H

#include <stdbool.h>

#include "file/codec/pack.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "fields are stored as words, least byte first");
_Static_assert(ML_ACTION_COUNT <= 10, "tags from 10 on are not actions");
_Static_assert(ML_IS_NUMBERED(ML_SPARSE_COLUMNS, ML_SPARSE_COLUMN_COUNT),
               "a number is missing or twice");
/* A record of a sparse column has the two low bits of its number.  For 4 more, a record
 * of 0 in two bytes stands before it.  Readers that do not know this see two values of a
 * lower column; its true value follows, be it 0. */
#define ML_PACK_SPARSE_PAGE 4u
_Static_assert(offsetof(ml_pack, stack) == 64 &&
                   offsetof(ml_pack, autograd_thread) == 100 &&
                   offsetof(ml_pack, sequence_max) == ML_PACK_STATE_BYTES - 2,
               "a state's record is the struct's bytes");

/* The last event, but completed: only its time differs. */
#define ML_PACK_TAG_COMPLETED 10u
#define ML_PACK_TAG_CONTEXT 11u
#define ML_PACK_TAG_NEXT 12u
#define ML_PACK_TAG_SPARSE 13u
/* The base of the records after it, in place of all before. */
#define ML_PACK_TAG_STATE 14u
#define ML_PACK_TAG_OTHER 15u

/* Places of the codes in the three bytes of an event. */
#define ML_PACK_TIME_AT 4
#define ML_PACK_ADDR_AT 6
#define ML_PACK_SIZE_AT 9
#define ML_PACK_STACK_AT 12
#define ML_PACK_ORIGIN_AT 14
#define ML_PACK_BLOCK_AT 16
#define ML_PACK_SEQUENCE_AT 19
#define ML_PACK_NODE_AT 22
#define ML_PACK_CODES_BYTES 3u

/* Bytes of a field by its code.  If a second table follows, the value is in units of
 * 2^shift. */
static const uint8_t ml_pack_time_bytes[4] = {2, 3, 4, 8};
static const uint8_t ml_pack_completed_time_bytes[4] = {0, 1, 2, 8};
/* Distance to the address before; 0: none; 7: the address itself. */
static const uint8_t ml_pack_addr_bytes[8] = {0, 2, 3, 4, 3, 5, 6, 8};
static const uint8_t ml_pack_addr_shift[8] = {0, 9, 9, 9, 6, 6, 0, 0};
/* 0: as before. */
static const uint8_t ml_pack_size_bytes[8] = {0, 1, 2, 1, 2, 4, 3, 8};
static const uint8_t ml_pack_size_shift[8] = {0, 0, 0, 9, 9, 0, 9, 0};
/* 0: as in the last event of the class. */
static const uint8_t ml_pack_stack_bytes[4] = {0, 2, 3, 4};
/* 0: the rounded size; 1: zero; 2: the size; 7: itself; else the excess over the
 * rounded size, in units of 512 bytes. */
static const uint8_t ml_pack_block_bytes[8] = {0, 0, 0, 1, 2, 3, 4, 8};
/* 0: as before; 1: UINT64_MAX; 5: itself; else the distance. */
static const uint8_t ml_pack_sequence_bytes[8] = {0, 0, 1, 2, 4, 8, 0, 0};
/* Distance to the number before; 3: the number itself. */
static const uint8_t ml_pack_next_bytes[4] = {0, 1, 2, 8};
#define ML_PACK_NEXT_CODE_AT 4
#define ML_PACK_NEXT_THREAD 0x40u /* another thread than before follows the number */
#define ML_PACK_NEXT_ALL 0x7fu
/* 0: as before; 1: none. */
static const uint8_t ml_pack_node_bytes[4] = {0, 0, 2, 4};

/* Bits of the second byte of a context: which fields follow, in this order.  The first
 * byte has the class of the flags above its tag. */
#define ML_PACK_CONTEXT_FLAGS 0x01u
#define ML_PACK_CONTEXT_THREAD 0x02u
#define ML_PACK_CONTEXT_AUTOGRAD 0x04u
#define ML_PACK_CONTEXT_STREAM 0x08u
#define ML_PACK_CONTEXT_POOL 0x10u
#define ML_PACK_CONTEXT_METADATA 0x20u
/* The stream before the last change is back: two alternating streams cost little. */
#define ML_PACK_CONTEXT_STREAM_BACK 0x40u
/* As the thread above, in four bytes, for programs that keep starting threads. */
#define ML_PACK_CONTEXT_THREAD_WIDE 0x80u

static inline unsigned
ml_pack_class_of(unsigned action)
{
    return ml_action_frees(action) ? 1u : 0u;
}

/* The block of SIZE requested bytes by the allocator's default rules.  Any function would
 * do as long as both sides use it. */
static inline uint64_t
ml_pack_rounded(uint64_t size)
{
    return size < 512 ? 512 : (size + 511) & ~UINT64_C(511);
}

/* A distance as magnitude and, in the lowest bit, sign: small ones of both signs are
 * short. */
static inline uint64_t
ml_pack_fold_sign(uint64_t distance, unsigned shift)
{
    bool negative = distance >> 63 != 0;
    uint64_t magnitude = negative ? 0 - distance : distance;
    return (magnitude >> shift) << 1 | negative;
}

static inline uint64_t
ml_pack_unfold_sign(uint64_t folded, unsigned shift)
{
    uint64_t magnitude = (folded >> 1) << shift;
    return (folded & 1) != 0 ? 0 - magnitude : magnitude;
}

#endif
