/* Resolves ids to names: adds recorded stacks to a recording.  See stacks.h.
 *
 * Runs once, after the recording, without limits of time and memory.  Other threads may
 * still add to the tables.  Everything reachable from an id known to the caller was
 * complete before the caller could know it. */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "recording/interner.h"
#include "stacks/linetable.h"
#include "stacks/stacks.h"
#include "stacks/stacks_records.h"

/* In `resolved`: needed, no id yet. */
#define NEEDED UINT32_MAX
/* In `made`: a file that was not generated. */
#define NOT_MADE 1u

typedef struct resolver {
    const ml_stacks *stacks; /* borrowed */
    ml_interner interner;    /* of the recording */
    uint32_t *string_ids;    /* by string id here; 0: not yet */
    uint32_t *resolved;      /* by stack id: 0 not needed, NEEDED, or the result */
    /* by string id of a path: 0: not looked up; NOT_MADE; or the file of the origins,
     * plus 2; NULL: no origins */
    uint32_t *made;
    uint64_t *pcs;           /* distinct and ascending */
    ml_native_text *natives; /* by index into pcs */
    size_t pc_count;
    ml_stack *spliced; /* frames of one stack, innermost first; parents unused */
    size_t spliced_capacity;
} resolver;

/* ---- Python frames ---- */

static int
resolve_string(resolver *r, uint32_t string_id, uint32_t *id)
{
    if (string_id != 0 && r->string_ids[string_id] == 0) {
        const ml_stack_string *string = string_at(r->stacks, string_id);
        int error = ml_interner_string(&r->interner,
                                       (char *)r->stacks->text.base + string->start,
                                       string->length, &r->string_ids[string_id]);
        if (error != 0) {
            return error;
        }
    }
    *id = string_id == 0 ? 0 : r->string_ids[string_id];
    return 0;
}

static int64_t
node_line(const ml_stacks *stacks, const ml_stack_node *node, const ml_stack_code *code)
{
    if (code->python_minor == 0) {
        return node->offset;
    }
    const ml_stack_string *table = string_at(stacks, code->linetable);
    int64_t line =
        ml_linetable_line((uint8_t *)stacks->text.base + table->start, table->length,
                          code->firstlineno, code->python_minor, node->offset);
    return line > 0 ? line : 0;
}

/* The name of the object that the frame works on, else its type's.  Names may be newer
 * than `string_ids`. */
static int
resolve_object(resolver *r, uint32_t object_id, uint32_t *id)
{
    const char *text = r->stacks->text.base;
    char unnamed[256];

    *id = 0;
    if (object_id == 0) {
        return 0;
    }
    if (object_id == ML_STACK_LOST) {
        return ml_interner_string(&r->interner, ML_NAME_LOST, strlen(ML_NAME_LOST), id);
    }
    const ml_stack_object *object = object_in(&r->stacks->objects, object_id);
    uint32_t name = atomic_load_explicit(&object->name, memory_order_acquire);
    if (name != 0) {
        const ml_stack_string *string = string_at(r->stacks, name);
        return ml_interner_string(&r->interner, text + string->start, string->length,
                                  id);
    }
    const ml_stack_string *type = string_at(r->stacks, object->type_name);
    int length = snprintf(unnamed, sizeof(unnamed), "<%.*s>", (int)type->length,
                          text + type->start);
    bool whole = (size_t)length < sizeof(unnamed);
    return ml_interner_string(&r->interner, unnamed,
                              whole ? (size_t)length : sizeof(unnamed) - 1, id);
}

static int
splice_push(resolver *r, size_t *count, ml_stack frame)
{
    int error = ml_grow((void **)&r->spliced, &r->spliced_capacity, *count + 1,
                        sizeof(*r->spliced));
    if (error == 0) {
        r->spliced[(*count)++] = frame;
    }
    return error;
}

/* Puts the COUNT spliced frames, innermost first, on top of *STACK. */
static int
splice_end(resolver *r, size_t count, uint32_t *stack)
{
    int error = 0;

    while (count > 0 && error == 0) {
        count--;
        r->spliced[count].parent = *stack;
        error = ml_interner_stack(&r->interner, r->spliced[count], stack);
    }
    return error;
}

static int
add_text(resolver *r, ml_slice text, uint32_t *id)
{
    *id = 0;
    return text.length == 0
               ? 0
               : ml_interner_string(&r->interner, text.bytes, text.length, id);
}

/* The frame behind LINE of the file whose path is string PATH; 0: none.  Paths are
 * compared once, not for every frame. */
static uint32_t
find_origin(const resolver *r, uint32_t path, int64_t line)
{
    const ml_origins *origins = &r->stacks->origins;

    if (r->made == NULL || path == 0) {
        return 0;
    }
    uint32_t *made = &r->made[path];
    if (*made == 0) {
        const ml_origin_file *file =
            ml_origins_file(origins, ml_stacks_text(r->stacks, path));
        *made = file == NULL ? NOT_MADE : (uint32_t)(file - origins->files) + 2;
    }
    return *made == NOT_MADE ? 0
                             : ml_origins_of(origins, &origins->files[*made - 2], line);
}

/* Puts the frames behind LINE of CODE's file on top of *STACK. */
static int
resolve_origin(resolver *r, const ml_stack_code *code, int64_t line, uint32_t *stack)
{
    const ml_origins *origins = &r->stacks->origins;
    size_t count = 0;
    int error = 0;

    uint32_t at = find_origin(r, code->filename, line);
    for (; at != 0 && error == 0; at = origins->frames[at].caller) {
        const ml_origin_frame *origin = &origins->frames[at];
        ml_frame frame = {.line = origin->line};
        ml_stack entry = {.module = 0};
        error = add_text(r, ml_origins_text(origins, origin->name), &frame.name);
        if (error == 0) {
            error = add_text(r, ml_origins_text(origins, origin->filename),
                             &frame.filename);
        }
        if (error == 0) {
            error = ml_interner_frame(&r->interner, frame, &entry.frame);
        }
        if (error == 0) {
            error = splice_push(r, &count, entry);
        }
    }
    return error != 0 ? error : splice_end(r, count, stack);
}

static int
resolve_python(resolver *r, const ml_stack_node *node, uint32_t *id)
{
    const ml_stack_code *code = code_at(r->stacks, node->code_id);
    ml_frame frame = {.line = node_line(r->stacks, node, code)};
    ml_stack stack = {.parent = node->parent == 0 ? 0 : r->resolved[node->parent]};

    int error = resolve_origin(r, code, frame.line, &stack.parent);
    if (error == 0) {
        error = resolve_string(r, code->name, &frame.name);
    }
    if (error == 0) {
        error = resolve_string(r, code->filename, &frame.filename);
    }
    if (error == 0) {
        error = ml_interner_frame(&r->interner, frame, &stack.frame);
    }
    if (error == 0) {
        error = resolve_object(r, node->object, &stack.module);
    }
    return error != 0 ? error : ml_interner_stack(&r->interner, stack, id);
}

/* ---- native frames ---- */

static int
name_natives(resolver *r, size_t count, const ml_symbolizer *symbolizer)
{
    size_t needed = 0;

    for (size_t id = 1; id < count; id++) {
        needed += r->resolved[id] != 0 && node_at(r->stacks, (uint32_t)id)->code == 0;
    }
    if (needed == 0) {
        return 0;
    }
    r->pcs = ml_alloc_zeroed(needed, sizeof(*r->pcs));
    r->natives = ml_alloc_zeroed(needed, sizeof(*r->natives));
    if (r->pcs == NULL || r->natives == NULL) {
        return ML_ENOMEM;
    }
    size_t filled = 0;
    for (size_t id = 1; id < count; id++) {
        const ml_stack_node *node = node_at(r->stacks, (uint32_t)id);
        if (r->resolved[id] != 0 && node->code == 0 &&
            (node->fingerprint & ML_NATIVE_LEFT_OUT) == 0) {
            r->pcs[filled++] = node->fingerprint;
        }
    }
    qsort(r->pcs, filled, sizeof(*r->pcs), ml_compare_u64);
    for (size_t i = 0; i < filled; i++) {
        if (r->pc_count == 0 || r->pcs[i] != r->pcs[r->pc_count - 1]) {
            r->pcs[r->pc_count++] = r->pcs[i];
        }
    }
    if (symbolizer == NULL) {
        return 0;
    }
    return symbolizer->symbolize(symbolizer->context, r->pcs, r->pc_count, r->natives);
}

/* The frame that replaces those left out has no text. */
static ml_native_text
native_text(const resolver *r, uint64_t pc)
{
    const uint64_t *at = r->pc_count == 0 ? NULL
                                          : bsearch(&pc, r->pcs, r->pc_count,
                                                    sizeof(*r->pcs), ml_compare_u64);
    return at != NULL ? r->natives[at - r->pcs] : (ml_native_text){.line = 0};
}

static int
resolve_native(resolver *r, uint64_t pc, uint32_t *frame_id)
{
    ml_native_text text = native_text(r, pc);
    const char *filename = text.filename != NULL ? text.filename : "";
    char made[ML_LEFT_OUT_BYTES + 1] = "";
    const char *name = text.name;

    if ((pc & ML_NATIVE_LEFT_OUT) != 0) {
        name = ml_left_out_text(pc & ~ML_NATIVE_LEFT_OUT, made + ML_LEFT_OUT_BYTES);
    }
    else if (name == NULL) {
        snprintf(made, sizeof(made), "0x%" PRIx64, pc);
        name = made;
    }
    ml_frame frame = {.line = text.line};
    int error = ml_interner_string(&r->interner, name, strlen(name), &frame.name);
    if (error == 0) {
        error = ml_interner_string(&r->interner, filename, strlen(filename),
                                   &frame.filename);
    }
    return error != 0 ? error : ml_interner_frame(&r->interner, frame, frame_id);
}

/* Takes the innermost frame off the chain of nodes *PYTHON, with the frames behind
 * it. */
static int
splice_python(resolver *r, size_t *count, uint32_t *python)
{
    uint32_t caller = node_at(r->stacks, *python)->parent;
    uint32_t end = caller == 0 ? 0 : r->resolved[caller];
    int error = 0;

    for (uint32_t at = r->resolved[*python]; at != end && error == 0;) {
        ml_stack stack = r->interner.recording->stacks[at];
        error = splice_push(r, count, stack);
        at = stack.parent;
    }
    *python = caller;
    return error;
}

/* The remaining frames of a stack, except those of C++: chains of nodes, innermost
 * first. */
typedef struct interpreted {
    uint32_t torchscript; /* up to PYTHON_TOP */
    uint32_t python_top;
    uint32_t python;
} interpreted;

static interpreted
interpreted_of(const resolver *r, uint32_t id)
{
    while (id != 0 && node_at(r->stacks, id)->code == 0) {
        id = node_at(r->stacks, id)->parent;
    }
    uint32_t top = id;
    while (top != 0 && (node_at(r->stacks, top)->code & ML_TORCHSCRIPT_CODE) != 0) {
        top = node_at(r->stacks, top)->parent;
    }
    return (interpreted){id, top, top};
}

static int
splice_torchscript(resolver *r, size_t *count, interpreted *left)
{
    int error = 0;
    while (left->torchscript != left->python_top && error == 0) {
        error = splice_python(r, count, &left->torchscript);
    }
    return error;
}

/* Adds the frames that the C++ function NAME ran. */
static int
splice_before(resolver *r, size_t *count, interpreted *left, const char *name)
{
    static const char interpreter[] = "torch::jit::InterpreterStateImpl::run";
    if (name == NULL) {
        return 0;
    }
    if (strncmp(name, interpreter, sizeof(interpreter) - 1) == 0) {
        return splice_torchscript(r, count, left);
    }
    if (left->python != 0 && strstr(name, "PyEval_EvalFrame") != NULL) {
        return splice_python(r, count, &left->python);
    }
    return 0;
}

/* Before each C++ frame of the interpreter comes the Python frame that it ran.  From
 * 3.11 on, one such frame runs several; the remaining ones follow at the end.
 * TorchScript's frames, of one interpreter a stack, come together before that.  This is
 * torch's order, so its viewers show the same. */
static int
resolve_spliced(resolver *r, uint32_t id, uint32_t *result)
{
    interpreted left = interpreted_of(r, id);
    uint32_t leaf = left.torchscript;
    size_t count = 0;
    int error = 0;

    while (id != leaf && error == 0) {
        const ml_stack_node *node = node_at(r->stacks, id);
        ml_stack native = {.module = 0};
        error = splice_before(r, &count, &left, native_text(r, node->fingerprint).name);
        if (error == 0) {
            error = resolve_native(r, node->fingerprint, &native.frame);
        }
        if (error == 0) {
            error = splice_push(r, &count, native);
        }
        id = node->parent;
    }
    if (error == 0) {
        error = splice_torchscript(r, &count, &left);
    }
    while (left.python != 0 && error == 0) {
        error = splice_python(r, &count, &left.python);
    }
    uint32_t stack = 0;
    if (error == 0) {
        error = splice_end(r, count, &stack);
    }
    if (error == 0) {
        *result = stack;
    }
    return error;
}

/* ---- the two entries ---- */

static void
resolver_fini(resolver *r)
{
    ml_interner_fini(&r->interner);
    ml_free(r->string_ids);
    ml_free(r->resolved);
    ml_free(r->made);
    ml_free(r->pcs);
    ml_free(r->natives);
    ml_free(r->spliced);
}

static int
resolver_init(resolver *r, const ml_stacks *stacks, ml_recording *recording)
{
    *r = (resolver){.stacks = stacks};
    r->string_ids =
        ml_alloc_zeroed(ml_stacks_string_count(stacks), sizeof(*r->string_ids));
    if (r->string_ids == NULL) {
        return ML_ENOMEM;
    }
    if (stacks->origins.line_count > 0) {
        r->made = ml_alloc_zeroed(ml_stacks_string_count(stacks), sizeof(*r->made));
        if (r->made == NULL) {
            return ML_ENOMEM;
        }
    }
    return ml_interner_init(&r->interner, recording);
}

static int
resolve_all(resolver *r, uint32_t *stack_map, size_t count,
            const ml_symbolizer *symbolizer)
{
    r->resolved = ml_alloc_zeroed(count, sizeof(*r->resolved));
    if (r->resolved == NULL) {
        return ML_ENOMEM;
    }
    /* Parents have smaller ids, so one pass down marks all ancestors and one pass up
     * meets parents first. */
    for (size_t id = count; id-- > 1;) {
        if (stack_map[id] != 0) {
            r->resolved[id] = NEEDED;
        }
        if (r->resolved[id] != 0) {
            r->resolved[node_at(r->stacks, (uint32_t)id)->parent] = NEEDED;
        }
    }
    int error = name_natives(r, count, symbolizer);
    for (size_t id = 1; id < count && error == 0; id++) {
        const ml_stack_node *node = node_at(r->stacks, (uint32_t)id);
        if (r->resolved[id] != 0 && node->code != 0) {
            error = resolve_python(r, node, &r->resolved[id]);
        }
    }
    /* The places of Python frames among native ones depend on the whole stack.  So
     * these stacks share no prefix work, and only wanted ones are built. */
    for (size_t id = 1; id < count && error == 0; id++) {
        if (stack_map[id] != 0 && node_at(r->stacks, (uint32_t)id)->code == 0) {
            error = resolve_spliced(r, (uint32_t)id, &r->resolved[id]);
        }
    }
    return error;
}

int
ml_stacks_resolve(const ml_stacks *stacks, ml_recording *recording, uint32_t *stack_map,
                  size_t count, const ml_symbolizer *symbolizer)
{
    resolver r;

    if (count == 0) {
        return 0;
    }
    if (count > ml_stacks_count(stacks)) {
        return ML_EINVALID;
    }
    int error = resolver_init(&r, stacks, recording);
    if (error == 0) {
        error = ml_interner_enter_stacks(&r.interner);
    }
    if (error == 0) {
        error = resolve_all(&r, stack_map, count, symbolizer);
    }
    if (error == 0) {
        stack_map[0] = 0;
        for (size_t id = 1; id < count; id++) {
            stack_map[id] = stack_map[id] != 0 ? r.resolved[id] : 0;
        }
    }
    resolver_fini(&r);
    return error;
}

int
ml_stacks_resolve_strings(const ml_stacks *stacks, ml_recording *recording,
                          uint32_t *string_map, size_t count)
{
    resolver r;

    if (count == 0) {
        return 0;
    }
    if (count > ml_stacks_string_count(stacks)) {
        return ML_EINVALID;
    }
    int error = resolver_init(&r, stacks, recording);
    for (size_t id = 0; id < count && error == 0; id++) {
        uint32_t found = 0;
        if (string_map[id] != 0) {
            error = resolve_string(&r, (uint32_t)id, &found);
        }
    }
    if (error == 0) {
        for (size_t id = 0; id < count; id++) {
            string_map[id] = string_map[id] != 0 ? r.string_ids[id] : 0;
        }
    }
    resolver_fini(&r);
    return error;
}
