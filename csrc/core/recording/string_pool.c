/* Texts of several recordings.  See string_pool.h. */
#include "recording/string_pool.h"

typedef struct query {
    const ml_string_pool *texts;
    ml_string text;
} query;

static bool
same(const void *context, uint32_t id)
{
    const query *asked = context;
    return ml_string_compare(asked->texts->items[id], asked->text) == 0;
}

int
ml_string_pool_find(ml_string_pool *texts, ml_string text, uint32_t *id)
{
    uint64_t hash = ml_hash_bytes(text.bytes, text.length);
    query asked = {texts, text};
    if (ml_intern_find(&texts->table, hash, same, &asked, id)) {
        return 0;
    }
    int result = ml_grow((void **)&texts->items, &texts->capacity, texts->count + 1,
                         sizeof(*texts->items));
    if (result == 0) {
        result = ml_intern_add(&texts->table, hash);
    }
    if (result == 0) {
        *id = (uint32_t)texts->count;
        texts->items[texts->count++] = text;
    }
    return result;
}

int
ml_string_pool_init(ml_string_pool *texts)
{
    uint32_t empty;
    *texts = (ml_string_pool){0};
    int result = ml_string_pool_find(texts, (ml_string){.bytes = ""}, &empty);
    if (result < 0) {
        ml_string_pool_fini(texts);
    }
    return result;
}

void
ml_string_pool_fini(ml_string_pool *texts)
{
    ml_intern_fini(&texts->table);
    ml_free(texts->items);
    *texts = (ml_string_pool){0};
}

int
ml_string_pool_of(ml_string_pool *texts, const ml_recording *recording, uint32_t **ids)
{
    uint32_t *of = ml_alloc_zeroed(recording->string_count + 1, sizeof(*of));
    int result = of == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < recording->string_count && result == 0; i++) {
        result = ml_string_pool_find(texts, recording->strings[i], &of[i]);
    }
    if (result < 0) {
        ml_free(of);
        return result;
    }
    *ids = of;
    return 0;
}
