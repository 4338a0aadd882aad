/* Call stacks as small numbers: a trie that many threads extend at once.
 *
 * Owns the frames, the copied text of code objects and the strings that events refer to
 * by id while a recording runs, and the names of the objects that frames work on.  The
 * functions marked HOT are for the allocator callback: no lock, no allocation, no I/O,
 * and what they return stays valid until ml_stacks_free.  Here a code object is a
 * number and its text. */
#ifndef ML_STACKS_H
#define ML_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "recording/recording.h"

typedef struct ml_stacks ml_stacks;

/* Limits.  Address space for all is reserved at once, and becomes memory with use.  If
 * the system refuses, a half, a quarter, ... is reserved. */
typedef struct ml_stacks_limits {
    size_t nodes;      /* distinct (caller, frame) pairs */
    size_t codes;      /* code objects */
    size_t strings;    /* distinct names, file names, line tables and metadata */
    size_t objects;    /* objects that frames work on */
    size_t text_bytes; /* their bytes together, below 4 GiB */
} ml_stacks_limits;

/* One frame: a position in a code object.  Addresses of code objects are reused;
 * FINGERPRINT distinguishes codes at one address. */
typedef struct ml_frame_key {
    uint64_t code; /* address of the code object, never 0 */
    uint64_t fingerprint;
    uint32_t offset; /* of the instruction, bytes */
    /* Id of the object that the frame works on; 0: none; ML_STACK_LOST: it did not
     * fit. */
    uint32_t object;
} ml_frame_key;

/* The object of a frame: the torch.nn.Module whose call it is.  After its death another
 * object may have the address, see ml_stacks_forget_object. */
typedef struct ml_object_key {
    uint64_t address;
    uint64_t type; /* address of its type */
} ml_object_key;

typedef struct ml_slice {
    const char *bytes; /* borrowed; UTF-8, surrogates passed through */
    size_t length;     /* bytes */
} ml_slice;

/* The text for naming a frame after its code object has died. */
typedef struct ml_code_text {
    ml_slice name;
    ml_slice filename;
    ml_slice linetable; /* co_linetable, not text */
    int32_t firstlineno;
    /* Minor version of the CPython 3 that made the table; 0: there is none, and a key's
     * offset is the line. */
    int32_t python_minor;
} ml_code_text;

/* Bit of a key's code that no address has: a TorchScript frame, whose texts replace a
 * code object. */
#define ML_TORCHSCRIPT_CODE (UINT64_C(1) << 63)

/* Replaces an id that did not fit. */
#define ML_STACK_LOST UINT32_MAX
/* The text in a recording of a name that did not fit. */
#define ML_NAME_LOST "<lost>"

/* LIMITS NULL takes the defaults.  0, ML_EINVALID or ML_ENOMEM. */
int ml_stacks_new(ml_stacks **out, const ml_stacks_limits *limits);
/* Accepts NULL.  No other thread may still use STACKS. */
void ml_stacks_free(ml_stacks *stacks);

/* HOT.  The id of the stack PARENT (0: none) extended by a frame; 0 if it is not known
 * yet.  An id is above its parent's. */
uint32_t ml_stacks_find(const ml_stacks *stacks, uint32_t parent,
                        const ml_frame_key *key);

/* HOT.  Finds or adds.  TEXT may be NULL; the result is then 0 if the code object is
 * new and its text is needed.  ML_STACK_LOST: a table is full.  PARENT is 0 or the id
 * of a stack without native frames. */
uint32_t ml_stacks_add(ml_stacks *stacks, uint32_t parent, const ml_frame_key *key,
                       const ml_code_text *text);

/* Replaces a program counter, which is below it: this many native frames were left
 * out. */
#define ML_NATIVE_LEFT_OUT (UINT64_C(1) << 63)

/* Most bytes of ml_left_out_text. */
#define ML_LEFT_OUT_BYTES 48

/* HOT.  Writes "<N frames left out>" into the memory before END; returns its
 * beginning. */
static inline char *
ml_left_out_text(uint64_t count, char *end)
{
    static const char after[] = " frames left out>";
    char *at = end - (sizeof(after) - 1);
    for (size_t i = 0; i < sizeof(after) - 1; i++) {
        at[i] = after[i];
    }
    do {
        *--at = (char)('0' + count % 10);
        count /= 10;
    } while (count > 0);
    *--at = '<';
    return at;
}

/* HOT.  Extends PARENT by a native frame, found or added.  Native frames are on top of
 * the Python stack of the same moment, outermost first.  ML_STACK_LOST: full. */
uint32_t ml_stacks_native(ml_stacks *stacks, uint32_t parent, uint64_t pc);

/* HOT.  The id of a byte string, found or added; 0 is the empty one.  ML_STACK_LOST:
 * full, which is counted. */
uint32_t ml_stacks_string(ml_stacks *stacks, const char *bytes, size_t length);

/* The string ID, from ml_stacks_string; valid as long as STACKS.  Empty for 0 and for
 * one that did not fit. */
ml_slice ml_stacks_text(const ml_stacks *stacks, uint32_t id);

/* The present path or name of the object ID, a string id; 0: none. */
uint32_t ml_stacks_object_name(const ml_stacks *stacks, uint32_t id);

/* HOT.  The id of an object whose type has that name, found or added.  TYPE_NAME may be
 * NULL; then any type name fits, and the result is 0 for a new object.  ML_STACK_LOST:
 * full. */
uint32_t ml_stacks_object(ml_stacks *stacks, ml_object_key key,
                          const ml_slice *type_name);

/* Names the object ID, in earlier and later stacks.  The latest name counts; without
 * one it is "<type name>".  Any thread.  0, ML_EINVALID or ML_EFULL. */
int ml_stacks_name_object(ml_stacks *stacks, uint32_t id, const char *name,
                          size_t length);

/* The object at ADDRESS is dying: a later object there is another one, with its own
 * name.  Any thread, before the memory can be used again. */
void ml_stacks_forget_object(ml_stacks *stacks, uint64_t address);

/* Number of strings and objects without room, except those of code objects, whose
 * stacks are lost. */
uint64_t ml_stacks_lost_names(const ml_stacks *stacks);

/* All ids of stacks, strings and objects are below these. */
uint32_t ml_stacks_count(const ml_stacks *stacks);
uint32_t ml_stacks_string_count(const ml_stacks *stacks);
uint32_t ml_stacks_object_count(const ml_stacks *stacks);

/* The origins of generated code.  When frames are resolved, frames of such code get
 * these as callers. */
typedef struct ml_origins ml_origins;
ml_origins *ml_stacks_origins(ml_stacks *stacks);

/* Names native frames. */
typedef struct ml_native_text {
    const char *name;     /* borrowed until ml_stacks_resolve returns; NULL: unknown */
    const char *filename; /* the same */
    int64_t line;         /* 0: unknown */
} ml_native_text;

typedef struct ml_symbolizer {
    void *context;
    /* Fills OUT[i] for PCS[i], called once with distinct PCS.  0 or ML_E*. */
    int (*symbolize)(void *context, const uint64_t *pcs, size_t count,
                     ml_native_text *out);
} ml_symbolizer;

/* Adds stacks to RECORDING with their frames and strings, each once; existing ones are
 * reused.  STACK_MAP has COUNT entries by stack id, COUNT at most ml_stacks_count.  A
 * non-zero entry requests a stack; afterwards it has the recording's id, and 0 if not
 * requested.  Native frames without SYMBOLIZER (NULL) are named by their address.
 * Python frames are placed among native ones as in torch.  Other threads may go on
 * adding, except origins.  0, ML_EINVALID, ML_ENOMEM or SYMBOLIZER's error; after an
 * error RECORDING has a part, and STACK_MAP is unchanged. */
int ml_stacks_resolve(const ml_stacks *stacks, ml_recording *recording,
                      uint32_t *stack_map, size_t count,
                      const ml_symbolizer *symbolizer);

/* The same for string ids, as in an event's metadata. */
int ml_stacks_resolve_strings(const ml_stacks *stacks, ml_recording *recording,
                              uint32_t *string_map, size_t count);

#endif
