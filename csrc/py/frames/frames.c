/* Captures the calling thread's Python stack.  See frames.h.
 *
 * Plain reads suffice.  Only this thread pushes and pops its frames.  A frame keeps its
 * code object alive, and the code's name, file name and line table do not change once
 * it runs.  So all data is live and constant during the walk, with or without the GIL.
 * The walk writes only the hashes of texts, which are the same for all threads.
 *
 * The thread state comes from PyGILState_GetThisThreadState: the "current" state
 * belongs to the thread that holds the GIL. */
#include "frames/frame_layout.h"

#include "frames/frames.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "core/base/base.h"
#include "core/stacks/stack_cache.h"
#include "core/stacks/stacks.h"
#include "frames/codes.h"
#include "frames/frames_parts.h"

/* Of the process, as is the layout. */
ml_frames_way ml_frames = {.capture = ML_CAPTURE_OFF,
                           .reason = "the self-check has not run"};

static _Atomic uintptr_t *
caller_of(const PyThreadState *thread)
{
    return &ml_frames.callers[ml_hash_u64((uintptr_t)thread) % ML_FRAMES_CALLERS];
}

/* ---- the walk ---- */

#ifndef WALK_UNKNOWN

/* Whether the first locals of CODE are self, args and kwargs. */
static inline bool
takes_all(const PyCodeObject *code)
{
    const int all = CO_VARARGS | CO_VARKEYWORDS;
    return (code->co_flags & all) == all && code->co_argcount == 1 &&
           code->co_kwonlyargcount == 0;
}

/* Distinguishes two calls of CODE, which is followed; 0: nothing does. */
static inline uint64_t
call_of(const walk_frame *frame, const PyCodeObject *code)
{
    return takes_all(code) ? walk_call(frame) : 0;
}

/* The words that determine a frame.  Its address is not one of them, because the next
 * call reuses it. */
static inline ml_seen_frame
see(const walk_frame *frame, const PyCodeObject *code, uint64_t position)
{
    const PyCodeObject *module_call =
        atomic_load_explicit(&ml_frames.followed, memory_order_acquire);
    const PyObject *object =
        code == module_call ? walk_local(frame, 0) : (PyObject *)NULL;

    if (object == NULL) {
        return (ml_seen_frame){.code = (uintptr_t)code,
                               .position = position,
                               .print = ml_codes_print(code)};
    }
    /* Code that is never freed needs no fingerprint. */
    return (ml_seen_frame){.code = (uintptr_t)code,
                           .position = position,
                           .print = (uintptr_t)Py_TYPE(object),
                           .object = (uintptr_t)object,
                           .call = call_of(frame, code)};
}

static inline bool
equal(const ml_seen_frame *a, const ml_seen_frame *b)
{
    return ((a->code ^ b->code) | (a->position ^ b->position) | (a->print ^ b->print) |
            (a->object ^ b->object) | (a->call ^ b->call)) == 0;
}

/* Whether FRAME equals OLD, as far as instructions identify code. */
static inline bool
stands(const walk_frame *frame, const ml_seen_frame *old)
{
    /* An instruction's address belongs to a generator or not, in every frame. */
    if ((old->position & ~POSITION_IN_GENERATOR) != walk_at(frame)) {
        return false;
    }
    if (old->object == 0) {
        return true;
    }
    const PyObject *object = walk_local(frame, 0);
    return old->object == (uintptr_t)object &&
           old->print == (uintptr_t)Py_TYPE(object) &&
           old->call == call_of(frame, (const PyCodeObject *)(uintptr_t)old->code);
}

/* The interpreter's number of frames. */
static size_t
count_frames(const PyThreadState *thread)
{
    uint64_t position;
    size_t count = 0;

    for (const walk_frame *frame = thread != NULL ? walk_first(thread) : NULL;
         frame != NULL; frame = walk_next(frame)) {
        count += walk_code(frame, &position) != NULL;
    }
    return count;
}

/* Compares FRAME and its callers with the frames before *AT, down to STOP, and stores
 * those that differ.  *SAME becomes the first that differs, if it comes before.
 * Returns the frame for which there was no room, or NULL.  Always inlined, so that the
 * loop over unchanged frames has no test of BY_POSITION. */
static inline __attribute__((always_inline)) const walk_frame *
see_until(const walk_frame *frame, ml_seen_frame **at, ml_seen_frame *stop,
          bool by_position, ml_seen_frame **same)
{
    ml_seen_frame *seen_to = *at;
    ml_seen_frame *changed = *same;

    for (; frame != NULL; frame = walk_next(frame)) {
        if (by_position && seen_to != stop && stands(frame, seen_to - 1)) {
            seen_to--;
            continue;
        }
        uint64_t position;
        const PyCodeObject *code = walk_code(frame, &position);
        if (code == NULL) {
            continue;
        }
        if (seen_to == stop) {
            break;
        }
        seen_to--;
        ml_seen_frame seen = see(frame, code, position);
        if (!equal(&seen, seen_to)) {
            *seen_to = seen;
            changed = seen_to < changed ? seen_to : changed;
        }
    }
    *at = seen_to;
    *same = changed;
    return frame;
}

/* The COUNT-th caller of FRAME, or NULL.  *SHOWN: how many of those passed Python
 * shows. */
static ML_RARE const walk_frame *
pass_over(const walk_frame *frame, size_t count, size_t *shown)
{
    uint64_t position;
    uint32_t offset;

    *shown = 0;
    for (; count > 0 && frame != NULL; frame = walk_next(frame)) {
        const PyCodeObject *code = walk_code(frame, &position);
        if (code != NULL) {
            *shown += offset_of(code, position, &offset);
            count--;
        }
    }
    return frame;
}

/* Updates WALKED, of the same thread, to its current frames: all COUNT, or both ends.
 * *STANDING of them are unchanged.  False if COUNT is wrong; WALKED is then empty.
 * BY_POSITION requires that no frame is left out, before and now. */
static inline __attribute__((always_inline)) bool
walk(const PyThreadState *thread, ml_walked *walked, size_t count, bool by_position,
     size_t *standing)
{
    const bool deep = !by_position && (count > ML_FRAMES_MAX || walked->left_out > 0);
    const size_t kept = deep && count > ML_FRAMES_MAX ? ML_FRAMES_MAX : count;
    size_t left_out = 0;
    ml_seen_frame *const first = walked->frames;
    ml_seen_frame *at = first + kept; /* inner frames are done */
    size_t before = walked->count;
    ml_seen_frame *same = first + (kept < before ? kept : before);
    const walk_frame *frame = thread != NULL ? walk_first(thread) : NULL;

    for (; before < kept; before++) {
        first[before].position = 0; /* of no frame */
    }
    if (count > kept) {
        frame = see_until(frame, &at, first + ML_FRAMES_OUTER, by_position, &same);
        frame = pass_over(frame, count - kept, &left_out);
    }
    frame = see_until(frame, &at, first, by_position, &same);
    if (deep && left_out != walked->left_out) {
        /* Frames left out come before those inside of them. */
        same = same < first + ML_FRAMES_OUTER ? same : first + ML_FRAMES_OUTER;
        walked->left_out = left_out;
    }
    bool right = at == first && frame == NULL;
    walked->count = right ? kept : 0;
    *standing = (size_t)(same - first);
    return right;
}

void
ml_frames_walk(const PyThreadState *thread, ml_walked *walked)
{
    size_t standing;

    walked->count = 0;
    walked->left_out = 0;
    walk(thread, walked, count_frames(thread), false, &standing);
}

bool
ml_frames_key(const ml_seen_frame *seen, ml_frame_key *key)
{
    const PyCodeObject *code = (const PyCodeObject *)(uintptr_t)seen->code;

    *key = (ml_frame_key){.code = seen->code, .fingerprint = seen->print};
    if (seen->object != 0) {
        key->fingerprint = ml_codes_print(code);
    }
    return offset_of(code, seen->position, &key->offset);
}

#endif

/* ---- interning ---- */

/* The code of the frame that represents those left out of a deep stack.  Their number
 * is its fingerprint, and in its name. */
static const char left_out_code;

/* Not inlined, so that the buffers cost the common path no stack. */
static ML_RARE uint32_t
add_new_code(ml_stacks *stacks, uint32_t parent, const ml_frame_key *key,
             bool with_lines)
{
    ml_codes_buffers buffers;
    ml_code_text text;

    if (key->code == (uintptr_t)&left_out_code) {
        char *end = buffers.name + sizeof(buffers.name);
        char *begin = ml_left_out_text(key->fingerprint, end);
        text =
            (ml_code_text){.name = {.bytes = begin, .length = (size_t)(end - begin)}};
    }
    else {
        text = ml_codes_text((const PyCodeObject *)(uintptr_t)key->code, &buffers,
                             with_lines);
    }
    return ml_stacks_add(stacks, parent, key, &text);
}

static uint32_t
add_frame(ml_stacks *stacks, uint32_t parent, const ml_frame_key *key, bool with_lines)
{
    uint32_t id = ml_stacks_add(stacks, parent, key, NULL);
    return id != 0 ? id : add_new_code(stacks, parent, key, with_lines);
}

static ML_RARE uint32_t
add_left_out(ml_stacks *stacks, uint32_t parent, size_t count)
{
    const ml_frame_key key = {.code = (uintptr_t)&left_out_code, .fingerprint = count};
    return add_frame(stacks, parent, &key, false);
}

static ML_RARE uint32_t
public_capture(ml_stacks *stacks)
{
    ml_frame_key keys[ML_FRAMES_MAX];
    size_t count = ml_frames_public_walk(keys);
    const size_t left_out = count > ML_FRAMES_MAX ? count - ML_FRAMES_MAX : 0;
    uint32_t id = 0;

    while (count > 0 && id != ML_STACK_LOST) {
        id = add_frame(stacks, id, &keys[ml_frames_public_place(--count)], false);
        if (left_out > 0 && count == ML_FRAMES_INNER + left_out &&
            id != ML_STACK_LOST) {
            id = add_left_out(stacks, id, left_out);
            count -= left_out;
        }
    }
    return id;
}

#ifndef WALK_UNKNOWN

/* The last part of the dotted name of a live type, as in Linear. */
static ml_slice
type_name(const PyTypeObject *type)
{
    const char *name = type->tp_name;
    size_t length = 0;

    for (const char *at = name; *at != '\0' && length < ML_CODES_TEXT_BYTES; at++) {
        length++;
        if (*at == '.') {
            name = at + 1;
            length = 0;
        }
    }
    return (ml_slice){.bytes = name, .length = length};
}

static uint32_t
object_id(ml_stacks *stacks, const ml_seen_frame *seen)
{
    ml_object_key key = {.address = seen->object, .type = seen->print};
    ml_slice name = type_name((const PyTypeObject *)(uintptr_t)seen->print);
    return ml_stacks_object(stacks, key, &name);
}

/* Whether the call at INDEX is within no other followed call. */
static bool
is_outermost(const ml_walked *walked, size_t index)
{
    size_t at = 0;

    while (at < index && walked->frames[at].object == 0) {
        at++;
    }
    return at == index;
}

/* Extends PARENT by the frame at INDEX, new since the last walk. */
static uint32_t
extend(ml_stacks *stacks, uint32_t parent, const ml_walked *walked, size_t index)
{
    const ml_seen_frame *seen = &walked->frames[index];
    ml_frame_key key;

    if (!ml_frames_key(seen, &key)) {
        return parent;
    }
    if (seen->object != 0) {
        key.object = object_id(stacks, seen);
        if (ml_stacks_object_name(stacks, key.object) == 0 ||
            is_outermost(walked, index)) {
            uintptr_t thread = (uintptr_t)PyGILState_GetThisThreadState();
            atomic_store_explicit(caller_of((const PyThreadState *)thread), thread,
                                  memory_order_relaxed);
        }
    }
    return add_frame(stacks, parent, &key, true);
}

/* Gives WALKED's frames their ids, except the outermost STANDING, which have them.
 * Returns the innermost. */
static uint32_t
intern(ml_stacks *stacks, ml_walked *walked, size_t standing)
{
    uint32_t id = 0;

    if (standing > 0) {
        id = walked->ids[standing - 1];
    }
    for (size_t i = standing; i < walked->count && id != ML_STACK_LOST; i++) {
        if (i == ML_FRAMES_OUTER && walked->left_out > 0) {
            id = add_left_out(stacks, id, walked->left_out);
            if (id == ML_STACK_LOST) {
                break;
            }
        }
        id = extend(stacks, id, walked, i);
        walked->ids[i] = id;
    }
    if (id == ML_STACK_LOST) {
        walked->count = 0;
    }
    return id;
}

#ifdef ML_CODES_WATCHED
/* Walks by instruction addresses alone, over as many frames as the interpreter counts
 * calls.  False if impossible. */
static inline bool
walk_quickly(const PyThreadState *thread, ml_stack_cache *recall, size_t *standing)
{
    ml_walked *walked = &recall->walked;
    uint64_t died = atomic_load_explicit(&ml_codes_died, memory_order_relaxed);
    bool held = recall->codes == died &&
                atomic_load_explicit(&ml_codes_watched, memory_order_relaxed);

    recall->codes = died;
    if (!held || walked->count == 0 || walked->left_out > 0) {
        return false;
    }
    int64_t count =
        (int64_t)walked->count + recall->room - thread->py_recursion_remaining;
    return count > 0 && count <= ML_FRAMES_MAX &&
           walk(thread, walked, (size_t)count, true, standing);
}
#endif

static inline uint32_t
recalled_capture(const PyThreadState *thread, ml_stacks *stacks, ml_stack_cache *recall)
{
    ml_walked *walked = &recall->walked;
    size_t standing = 0;
    bool quick = false;

#ifdef ML_CODES_WATCHED
    quick = walk_quickly(thread, recall, &standing);
    recall->room = thread->py_recursion_remaining;
#endif
    if (!quick) {
        walk(thread, walked, count_frames(thread), false, &standing);
    }
    return intern(stacks, walked, standing);
}

/* For a thread without a cached last walk. */
static ML_RARE uint32_t
fresh_capture(const PyThreadState *thread, ml_stacks *stacks)
{
    ml_walked walked;

    ml_frames_walk(thread, &walked);
    return intern(stacks, &walked, 0);
}

static uint32_t
walk_capture(ml_stacks *stacks)
{
    const PyThreadState *thread = PyGILState_GetThisThreadState();

    /* As on autograd's own threads, where half of a training's events are. */
    if (thread == NULL || walk_first(thread) == NULL) {
        return 0;
    }
    ml_stack_cache *recall = ml_stack_cache_take(stacks);
    if (recall == NULL) {
        return fresh_capture(thread, stacks);
    }
    uint32_t id = recalled_capture(thread, stacks, recall);
    ml_stack_cache_give_back(recall);
    return id;
}

#endif

uint32_t
ml_frames_capture(void *context, uint8_t *flags)
{
    int mode = atomic_load_explicit(&ml_frames.capture, memory_order_relaxed);
    uint32_t id = 0;

#ifndef WALK_UNKNOWN
    if (mode == ML_CAPTURE_WALK) {
        id = walk_capture(context);
    }
#endif
    if (mode == ML_CAPTURE_PUBLIC && ml_frames_holds_gil()) {
        id = public_capture(context);
    }
    if (id == 0) {
        *flags |= ML_EVENT_NO_PYTHON;
    }
    if (id == ML_STACK_LOST) {
        *flags |= ML_EVENT_STACK_LOST;
        id = 0;
    }
    return id;
}

bool
ml_frames_called(void)
{
    const PyThreadState *thread = PyThreadState_Get();
    _Atomic uintptr_t *place = caller_of(thread);

    if (atomic_load_explicit(place, memory_order_relaxed) != (uintptr_t)thread) {
        return false;
    }
    atomic_store_explicit(place, 0, memory_order_relaxed);
    return true;
}

size_t
ml_frames_calls(ml_call *calls, size_t capacity)
{
    size_t count = 0;
#ifndef WALK_UNKNOWN
    const PyCodeObject *code = atomic_load(&ml_frames.followed);
    const PyThreadState *thread = PyThreadState_Get();
    bool all = code != NULL && takes_all(code);
    uint64_t position;

    for (const walk_frame *frame = code != NULL ? walk_first(thread) : NULL;
         frame != NULL; frame = walk_next(frame)) {
        if (walk_code(frame, &position) == code && walk_local(frame, 0) != NULL) {
            count += count < capacity;
            calls[count - 1] = (ml_call){.object = walk_local(frame, 0),
                                         .args = all ? walk_local(frame, 1) : NULL,
                                         .kwargs = all ? walk_local(frame, 2) : NULL};
        }
    }
#else
    (void)calls;
    (void)capacity;
#endif
    return count;
}

bool
ml_frames_follow(PyCodeObject *code)
{
    bool in_place = code->co_argcount >= 1;
#if PY_VERSION_HEX >= 0x030b0000
    in_place = in_place && code->co_nlocalsplus >= 1 &&
               (PyBytes_AS_STRING(code->co_localspluskinds)[0] & CO_FAST_CELL) == 0;
#else
    in_place = in_place && code->co_cell2arg == NULL;
#endif
    if (in_place && atomic_load(&ml_frames.followed) != code) {
        Py_INCREF(code);
        atomic_store(&ml_frames.followed, code);
#ifdef ML_CODES_WATCHED
        /* Earlier walks did not look for the code's objects. */
        atomic_fetch_add(&ml_codes_died, 1);
#endif
    }
    return in_place;
}

void
ml_frames_capture_by(enum ml_capture mode, const char *reason)
{
    atomic_store(&ml_frames.reason, reason);
    atomic_store(&ml_frames.capture, mode);
}

bool
ml_frames_supported(const char **reason)
{
    *reason = atomic_load(&ml_frames.reason);
    return atomic_load(&ml_frames.capture) == ML_CAPTURE_WALK;
}
