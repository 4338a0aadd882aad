/* C++ frames for stacks="all".  See native.h. */
#include "frames/native.h"

#include <link.h>

#include "core/base/base.h"
#include "core/record/recorder.h"
#include "torch/bridge.h"

/* Deeper native stacks keep both ends, half of this each. */
#define NATIVE_DEPTH_MAX 512
#define NATIVE_OUTER (NATIVE_DEPTH_MAX / 2)

/* The code of memlab's own two libraries: their frames top every stack and say nothing
 * about the program. */
typedef struct code_range {
    uint64_t inside; /* an address within the library */
    uint64_t begin, end;
} code_range;

/* Copies of names that the unwinder only lends. */
typedef struct names {
    ml_native_text *out;
    char **owned;
    size_t count;
    size_t capacity;
} names;

/* torch's unwinder; its walker in the callback gets no context. */
static struct {
    const ml_native *torch; /* set once, before the walker is published */
    code_range own_code[2]; /* the same */
    names kept; /* until the next call of symbolize, under the recorder's lock */
} unwinder;

static int
find_range(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    code_range *range = context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uint64_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uint64_t end = begin + info->dlpi_phdr[i].p_memsz;
        if (range->inside >= begin && range->inside < end) {
            range->begin = begin;
            range->end = end;
            return 1;
        }
    }
    return 0;
}

static bool
is_own(uint64_t counter)
{
    return (counter >= unwinder.own_code[0].begin &&
            counter < unwinder.own_code[0].end) ||
           (counter >= unwinder.own_code[1].begin &&
            counter < unwinder.own_code[1].end);
}

static uint32_t
walk_native(void *stacks, uint32_t parent, uint8_t *flags)
{
    uint64_t counters[NATIVE_DEPTH_MAX];
    size_t all = unwinder.torch->capture(counters, NATIVE_DEPTH_MAX);
    size_t count = all < NATIVE_DEPTH_MAX ? all : NATIVE_DEPTH_MAX;
    if (parent == ML_STACK_LOST) {
        return parent;
    }
    /* The first frame is the unwinder's; then memlab's own follow. */
    size_t top = count > 0 ? 1 : 0;
    while (top < count && is_own(counters[top])) {
        top++;
    }
    uint32_t stack = parent;
    while (count > top) {
        stack =
            ml_stacks_native(stacks, stack, counters[--count] & ~ML_NATIVE_LEFT_OUT);
        if (all > NATIVE_DEPTH_MAX && count == NATIVE_DEPTH_MAX - NATIVE_OUTER &&
            stack != ML_STACK_LOST) {
            uint64_t left_out = ML_NATIVE_LEFT_OUT | (all - NATIVE_DEPTH_MAX);
            stack = ml_stacks_native(stacks, stack, left_out);
        }
        if (stack == ML_STACK_LOST) {
            *flags |= ML_EVENT_STACK_LOST;
            return ML_STACK_LOST;
        }
    }
    return stack;
}

static char *
copy_text(names *into, const char *text)
{
    size_t length = strlen(text);
    char *copy = ml_alloc(length + 1);
    if (copy == NULL || ml_grow((void **)&into->owned, &into->capacity, into->count + 1,
                                sizeof(*into->owned)) < 0) {
        ml_free(copy);
        return NULL;
    }
    memcpy(copy, text, length + 1);
    into->owned[into->count++] = copy;
    return copy;
}

static int
take_name(void *context, size_t index, const ml_native_frame *frame)
{
    names *into = context;
    ml_native_text *out = &into->out[index];
    out->name = copy_text(into, frame->function);
    out->filename = copy_text(into, frame->file);
    out->line = (int64_t)frame->line;
    return out->name != NULL && out->filename != NULL ? 0 : ML_ENOMEM;
}

static void
drop_names(void)
{
    for (size_t i = 0; i < unwinder.kept.count; i++) {
        ml_free(unwinder.kept.owned[i]);
    }
    ml_free(unwinder.kept.owned);
    unwinder.kept = (names){0};
}

static int
symbolize(void *context, const uint64_t *pcs, size_t count, ml_native_text *out)
{
    (void)context;
    drop_names();
    unwinder.kept.out = out;
    return unwinder.torch->symbolize(pcs, count, take_name, &unwinder.kept);
}

const char ml_native_use_doc[] =
    "use_native_stacks($module, capsule, /)\n--\n\n"
    "Takes the native unwinder that the torch bridge offers, for stacks=\"all\".";

PyObject *
ml_native_use(PyObject *module, PyObject *capsule)
{
    const ml_native *table =
        ml_py_bridge_table(module, capsule, ML_NATIVE_CAPSULE, sizeof(ml_native));
    if (table == NULL) {
        return NULL;
    }
    unwinder.own_code[0].inside = (uintptr_t)&walk_native;
    unwinder.own_code[1].inside = (uintptr_t)table->capture;
    for (int i = 0; i < 2; i++) {
        dl_iterate_phdr(find_range, &unwinder.own_code[i]);
    }
    unwinder.torch = table;
    ml_symbolizer symbolizer = {NULL, symbolize};
    ml_recorder_set_native(walk_native, &symbolizer);
    Py_RETURN_NONE;
}
