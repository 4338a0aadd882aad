/* Reads the names in a snapshot: found by identity first, then by value. */
#include "file/snapshot/snapshot_tables.h"

#include <string.h>

/* Bytes of one more entry in the recording and its index; a reference in the file may
 * have only two bytes. */
#define ENTRY_BYTES 48u

static bool
word_equals(const void *context, uint32_t id)
{
    const ml_text *wanted = context;
    const char *text = ml_word_text(id);
    return strlen(text) == wanted->length &&
           memcmp(text, wanted->bytes, wanted->length) == 0;
}

int
ml_snapshot_tables_init(ml_snapshot_tables *tables, ml_tree *tree,
                        ml_recording *recording)
{
    *tables = (ml_snapshot_tables){.tree = tree, .recording = recording};
    tables->words = ml_alloc_zeroed(tree->node_count, sizeof(*tables->words));
    tables->made = ml_alloc_zeroed(tree->node_count, sizeof(*tables->made));
    if (tables->words == NULL || tables->made == NULL) {
        return ML_ENOMEM;
    }
    for (unsigned word = 0; word < ML_WORD_COUNT; word++) {
        const char *text = ml_word_text(word);
        int error =
            ml_intern_add(&tables->word_index, ml_hash_bytes(text, strlen(text)));
        if (error != 0) {
            return error;
        }
    }
    int error = ml_interner_init(&tables->interner, recording);
    return error == 0 ? ml_interner_enter_stacks(&tables->interner) : error;
}

void
ml_snapshot_tables_fini(ml_snapshot_tables *tables)
{
    ml_free(tables->words);
    ml_free(tables->made);
    ml_intern_fini(&tables->word_index);
    ml_interner_fini(&tables->interner);
    *tables = (ml_snapshot_tables){0};
}

unsigned
ml_snapshot_tables_word(ml_snapshot_tables *tables, ml_value key)
{
    if (!ml_value_is(key, ML_VALUE_STRING)) {
        return ML_WORD_COUNT;
    }
    const ml_text *text = ml_value_as_text(key);
    uint8_t *seen = &tables->words[text->node.id];
    if (*seen == 0) {
        uint32_t word = ML_WORD_COUNT;
        ml_intern_find(&tables->word_index, ml_hash_bytes(text->bytes, text->length),
                       word_equals, text, &word);
        *seen = (uint8_t)(word + 1);
    }
    return *seen - 1u;
}

void
ml_snapshot_tables_lose(ml_snapshot_tables *tables, enum ml_unread what)
{
    tables->recording->unread[what]++;
}

bool
ml_snapshot_tables_give(ml_snapshot_tables *tables, enum ml_unread what, bool readable)
{
    tables->given[what]++;
    if (!readable) {
        ml_snapshot_tables_lose(tables, what);
    }
    return readable;
}

int
ml_tables_taken(ml_snapshot_tables *tables, enum ml_unread what, int result)
{
    if (result == ML_EFORMAT) {
        ml_snapshot_tables_lose(tables, what);
        return 0;
    }
    return result;
}

void
ml_snapshot_tables_count_missing(ml_snapshot_tables *tables)
{
    static const struct {
        unsigned owner;
        unsigned everywhere;
    } rules[] = {
#define XX(name, text, owner, everywhere) {ML_UNREAD_##owner, everywhere},
        ML_UNREADS(XX)
#undef XX
    };
    for (unsigned i = 0; i < ML_UNREAD_COUNT; i++) {
        bool expected = rules[i].everywhere == 2 ||
                        (rules[i].everywhere == 1 && tables->given[i] != 0);
        uint64_t least = expected ? tables->given[rules[i].owner] : 0;
        if (least > tables->given[i]) {
            tables->recording->unread[i] += least - tables->given[i];
        }
    }
}

int
ml_snapshot_tables_string(ml_snapshot_tables *tables, ml_value value,
                          enum ml_unread what, uint32_t *id)
{
    *id = 0;
    if (!ml_snapshot_tables_give(tables, what, ml_value_is(value, ML_VALUE_STRING))) {
        return 0;
    }
    const ml_text *text = ml_value_as_text(value);
    uint32_t *made = &tables->made[text->node.id];
    if (*made == 0) {
        size_t count = tables->recording->string_count;
        uint32_t found;
        int error =
            ml_interner_string(&tables->interner, text->bytes, text->length, &found);
        if (error == 0 && found == count) {
            error = ml_tree_charge(tables->tree, text->length + ENTRY_BYTES);
            const ml_string *string = &tables->recording->strings[found];
            if (memcmp(string->bytes, text->bytes, text->length) != 0) {
                ml_snapshot_tables_lose(tables, what); /* some bytes are not UTF-8 */
            }
        }
        if (error != 0) {
            return error;
        }
        *made = found + 1;
    }
    *id = *made - 1;
    return 0;
}

/* The bytes of LIST's texts, with those between; SIZE_MAX: not all are texts. */
static size_t
texts_length(const ml_array *list)
{
    size_t length = list->count != 0 ? list->count - 1 : 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (!ml_value_is(list->items[i], ML_VALUE_STRING)) {
            return SIZE_MAX;
        }
        length += ml_value_as_text(list->items[i])->length;
    }
    return length;
}

static int
join_texts(ml_snapshot_tables *tables, const ml_array *list, size_t length,
           uint32_t *id)
{
    char *joined = ml_alloc(length + 1);
    if (joined == NULL) {
        return ML_ENOMEM;
    }
    size_t used = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const ml_text *text = ml_value_as_text(list->items[i]);
        memcpy(joined + used, text->bytes, text->length);
        used += text->length;
        joined[used++] = '\0';
    }
    int error = ml_interner_string(&tables->interner, joined, length, id);
    ml_free(joined);
    return error;
}

int
ml_snapshot_tables_texts(ml_snapshot_tables *tables, ml_value value,
                         enum ml_unread what, uint32_t *id)
{
    *id = 0;
    size_t length = ml_value_is(value, ML_VALUE_LIST)
                        ? texts_length(ml_value_as_array(value))
                        : SIZE_MAX;
    if (length == SIZE_MAX) {
        ml_snapshot_tables_lose(tables, what);
        return 0;
    }
    const ml_array *list = ml_value_as_array(value);
    uint32_t *made = &tables->made[list->node.id];
    if (*made == 0 && length != 0) {
        uint32_t found;
        int error = ml_tree_charge(tables->tree, length + ENTRY_BYTES);
        error = error == 0 ? join_texts(tables, list, length, &found) : error;
        if (error != 0) {
            return error;
        }
        *made = found + 1;
    }
    *id = *made != 0 ? *made - 1 : 0;
    return 0;
}

/* torch writes 2**64-1 as the line of a frame without one; here it is 0. */
static int64_t
read_line(ml_snapshot_tables *tables, ml_value value)
{
    bool without = ml_value_is(value, ML_VALUE_UNSIGNED) &&
                   ml_value_as_scalar(value)->as.natural == UINT64_MAX;
    bool readable = ml_value_is(value, ML_VALUE_INT) && ml_value_as_int(value) >= 0 &&
                    ml_value_as_int(value) <= INT32_MAX;
    bool given =
        ml_snapshot_tables_give(tables, ML_UNREAD_FRAME_LINE, readable || without);
    return given && readable ? ml_value_as_int(value) : 0;
}

static int
read_frame(ml_snapshot_tables *tables, const ml_array *dict, ml_frame *frame)
{
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < dict->count; i += 2) {
        ml_value value = dict->items[i + 1];
        switch (ml_snapshot_tables_word(tables, dict->items[i])) {
        case ML_WORD_NAME:
            error = ml_snapshot_tables_string(tables, value, ML_UNREAD_FRAME_NAME,
                                              &frame->name);
            break;
        case ML_WORD_FILENAME:
            error = ml_snapshot_tables_string(tables, value, ML_UNREAD_FRAME_FILENAME,
                                              &frame->filename);
            break;
        case ML_WORD_LINE:
            frame->line = read_line(tables, value);
            break;
        default:
            break;
        }
    }
    return error;
}

static int
find_frame(ml_snapshot_tables *tables, ml_value value, uint32_t *id)
{
    *id = 0;
    if (!ml_value_is(value, ML_VALUE_DICT)) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_FRAME);
        return 0;
    }
    const ml_array *dict = ml_value_as_array(value);
    uint32_t *made = &tables->made[dict->node.id];
    if (*made == 0) {
        tables->given[ML_UNREAD_FRAME]++;
        ml_frame frame = {0};
        uint32_t found = 0;
        int error = read_frame(tables, dict, &frame);
        size_t count = tables->recording->frame_count;
        if (error == 0) {
            error = ml_interner_frame(&tables->interner, frame, &found);
        }
        if (error == 0 && found == count) {
            error = ml_tree_charge(tables->tree, ENTRY_BYTES);
        }
        if (error != 0) {
            return error;
        }
        *made = found + 1;
    }
    *id = *made - 1;
    return 0;
}

static int
find_stack(ml_snapshot_tables *tables, ml_stack stack, uint32_t *id)
{
    size_t count = tables->recording->stack_count;
    int error = ml_interner_stack(&tables->interner, stack, id);
    return error == 0 && *id == count ? ml_tree_charge(tables->tree, ENTRY_BYTES)
                                      : error;
}

/* The name in MODULES for PLACE.  Entries go from the innermost frame outwards, so
 * *BEFORE, the number of remaining ones, only falls. */
static int
module_at(ml_snapshot_tables *tables, const ml_array *modules, uint32_t *before,
          uint32_t place, uint32_t *name)
{
    *name = 0;
    for (; modules != NULL && *before != 0; *before -= 2) {
        ml_value key = modules->items[*before - 2];
        bool readable = ml_value_is(key, ML_VALUE_INT);
        if (readable && ml_value_as_int(key) == place) {
            *before -= 2;
            return ml_snapshot_tables_string(tables, modules->items[*before + 1],
                                             ML_UNREAD_MEMLAB_MODULE, name);
        }
        if (readable && ml_value_as_int(key) >= 0 && ml_value_as_int(key) < place) {
            return 0;
        }
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_MODULE); /* of no frame */
    }
    return 0;
}

static int
make_stack(ml_snapshot_tables *tables, const ml_array *list, const ml_array *modules,
           uint32_t *id)
{
    ml_stack stack = {0};
    uint32_t before = modules != NULL ? modules->count : 0;
    *id = 0;
    for (uint32_t i = list->count; i-- != 0;) {
        int error = find_frame(tables, list->items[i], &stack.frame);
        if (error == 0) {
            error = module_at(tables, modules, &before, i, &stack.module);
        }
        if (error == 0) {
            error = find_stack(tables, stack, id);
        }
        if (error != 0) {
            return error;
        }
        stack.parent = *id;
    }
    for (; before != 0; before -= 2) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_MODULE);
    }
    return 0;
}

int
ml_snapshot_tables_stack(ml_snapshot_tables *tables, ml_value value,
                         enum ml_unread what, uint32_t *id)
{
    *id = 0;
    if (!ml_value_is(value, ML_VALUE_LIST)) {
        ml_snapshot_tables_lose(tables, what);
        return 0;
    }
    const ml_array *list = ml_value_as_array(value);
    uint32_t *made = &tables->made[list->node.id];
    if (*made == 0) {
        uint32_t found;
        int error = make_stack(tables, list, NULL, &found);
        if (error != 0) {
            return error;
        }
        *made = found + 1;
    }
    *id = *made - 1;
    return 0;
}

int
ml_snapshot_tables_stack_of_modules(ml_snapshot_tables *tables, ml_value value,
                                    const ml_array *modules)
{
    if (!ml_value_is(value, ML_VALUE_LIST) ||
        tables->made[ml_value_as_array(value)->node.id] != 0) {
        ml_snapshot_tables_lose(tables, ML_UNREAD_MEMLAB_MODULE);
        return 0;
    }
    const ml_array *list = ml_value_as_array(value);
    uint32_t found;
    int error = make_stack(tables, list, modules, &found);
    if (error == 0) {
        tables->made[list->node.id] = found + 1;
    }
    return error;
}
