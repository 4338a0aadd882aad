/* Interns strings, frames and stacks of a recording under construction.  See
 * interner.h. */
#include "recording/interner.h"

#include <string.h>

typedef struct lookup {
    const ml_recording *recording;
    ml_string string;
    ml_frame frame;
    ml_stack stack;
} lookup;

static bool
string_equal(const void *context, uint32_t id)
{
    const lookup *wanted = context;
    const ml_string *string = &wanted->recording->strings[id];
    return string->length == wanted->string.length &&
           (string->length == 0 ||
            memcmp(string->bytes, wanted->string.bytes, string->length) == 0);
}

static bool
frame_equal(const void *context, uint32_t id)
{
    const lookup *wanted = context;
    const ml_frame *frame = &wanted->recording->frames[id];
    return frame->name == wanted->frame.name &&
           frame->filename == wanted->frame.filename &&
           frame->line == wanted->frame.line;
}

static bool
stack_equal(const void *context, uint32_t id)
{
    const lookup *wanted = context;
    const ml_stack *stack = &wanted->recording->stacks[id];
    return stack->parent == wanted->stack.parent &&
           stack->frame == wanted->stack.frame && stack->module == wanted->stack.module;
}

static uint64_t
frame_hash(ml_frame frame)
{
    uint64_t names = (uint64_t)frame.name << 32 | frame.filename;
    return ml_hash_u64(ml_hash_u64(names) + (uint64_t)frame.line);
}

static uint64_t
stack_hash(ml_stack stack)
{
    return ml_hash_u64(ml_hash_u64((uint64_t)stack.parent << 32 | stack.frame) +
                       stack.module);
}

int
ml_interner_init(ml_interner *interner, ml_recording *recording)
{
    *interner = (ml_interner){.recording = recording};
    int error = 0;

    for (size_t i = 0; i < recording->string_count && error == 0; i++) {
        ml_string string = recording->strings[i];
        error = ml_intern_add(&interner->strings,
                              ml_hash_bytes(string.bytes, string.length));
    }
    return error;
}

void
ml_interner_fini(ml_interner *interner)
{
    ml_intern_fini(&interner->strings);
    ml_intern_fini(&interner->frames);
    ml_intern_fini(&interner->stacks);
}

int
ml_interner_enter_stacks(ml_interner *interner)
{
    int error = 0;

    for (size_t i = 0; i < interner->recording->frame_count && error == 0; i++) {
        error = ml_intern_add(&interner->frames,
                              frame_hash(interner->recording->frames[i]));
    }
    for (size_t i = 0; i < interner->recording->stack_count && error == 0; i++) {
        error = ml_intern_add(&interner->stacks,
                              stack_hash(interner->recording->stacks[i]));
    }
    return error;
}

int
ml_interner_string(ml_interner *interner, const char *bytes, size_t length,
                   uint32_t *id)
{
    lookup wanted = {.recording = interner->recording,
                     .string = {.bytes = bytes, .length = (uint32_t)length}};
    uint64_t hash = ml_hash_bytes(bytes, length);

    if (ml_intern_find(&interner->strings, hash, string_equal, &wanted, id)) {
        return 0;
    }
    int error = ml_intern_add(&interner->strings, hash);
    return error != 0 ? error
                      : ml_recording_add_string(interner->recording, bytes, length, id);
}

int
ml_interner_frame(ml_interner *interner, ml_frame frame, uint32_t *id)
{
    lookup wanted = {.recording = interner->recording, .frame = frame};
    uint64_t hash = frame_hash(frame);

    if (ml_intern_find(&interner->frames, hash, frame_equal, &wanted, id)) {
        return 0;
    }
    int error = ml_intern_add(&interner->frames, hash);
    return error != 0 ? error : ml_recording_add_frame(interner->recording, frame, id);
}

int
ml_interner_stack(ml_interner *interner, ml_stack stack, uint32_t *id)
{
    lookup wanted = {.recording = interner->recording, .stack = stack};
    uint64_t hash = stack_hash(stack);

    if (ml_intern_find(&interner->stacks, hash, stack_equal, &wanted, id)) {
        return 0;
    }
    int error = ml_intern_add(&interner->stacks, hash);
    return error != 0 ? error : ml_recording_add_stack(interner->recording, stack, id);
}
