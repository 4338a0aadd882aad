/* Memory, growth, hashing and error texts for the core.  See base.h. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static void *
libc_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    return realloc(pointer, bytes);
}

/* Fresh pages from the system are zeros: memory use follows the written pages. */
static void *
libc_zeroed(size_t bytes)
{
    return calloc(1, bytes);
}

static ml_memory memory = {libc_realloc, libc_zeroed};

void
ml_set_memory(const ml_memory *from)
{
    memory = from != NULL ? *from : (ml_memory){libc_realloc, libc_zeroed};
}

void
ml_set_realloc(ml_realloc_hook hook)
{
    const ml_memory hooked = {.realloc = hook};
    ml_set_memory(hook != NULL ? &hooked : NULL);
}

void *
ml_realloc(void *pointer, size_t bytes)
{
    return memory.realloc(pointer, bytes);
}

void *
ml_alloc(size_t bytes)
{
    /* Zero bytes would free: an empty array still needs an address of its own. */
    return memory.realloc(NULL, bytes != 0 ? bytes : 1);
}

void *
ml_alloc_zeroed(size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    size_t bytes = count * size;
    if (memory.zeroed != NULL) {
        return memory.zeroed(bytes != 0 ? bytes : 1);
    }
    void *pointer = ml_alloc(bytes);
    if (pointer != NULL) {
        memset(pointer, 0, bytes);
    }
    return pointer;
}

void
ml_free(void *pointer)
{
    if (pointer != NULL) {
        memory.realloc(pointer, 0);
    }
}

int
ml_compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int
ml_grow(void **items, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity) {
        return 0;
    }
    size_t wanted = *capacity + *capacity / 2;
    if (wanted < needed) {
        wanted = needed;
    }
    if (wanted < 8) {
        wanted = 8;
    }
    if (wanted > SIZE_MAX / size) {
        return ML_ENOMEM;
    }
    /* ITEMS is really the address of some other kind of pointer: copying its bytes
     * keeps the access within the aliasing rules. */
    void *old;
    memcpy(&old, items, sizeof(old));
    void *grown = ml_realloc(old, wanted * size);
    if (grown == NULL) {
        return ML_ENOMEM;
    }
    memcpy(items, &grown, sizeof(grown));
    *capacity = wanted;
    return 0;
}

const char *
ml_strerror(int error)
{
    switch (error) {
    case ML_OK:
        return "no error";
#define XX(name, text) \
    case ML_E##name: \
        return text;
        ML_ERRORS(XX)
#undef XX
    default:
        return "unknown error";
    }
}

__extension__ typedef unsigned __int128 wide;

static uint64_t
fold(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t
ml_hash_bytes(const void *bytes, size_t length)
{
    /* The address differs between processes, so a file cannot be made to collide in the
     * tables.  Hashes must therefore never leave the process. */
    static const char salt = 0;
    const unsigned char *at = bytes;
    uint64_t hash = fold((uint64_t)(uintptr_t)&salt ^ 0xa0761d6478bd642fu,
                         (uint64_t)length ^ 0xe7037ed1a0b428dbu);
    size_t left = length;
    while (left > 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = fold(hash ^ word, 0x8ebc6af09c88c6e3u);
        at += 8;
        left -= 8;
    }
    uint64_t tail = 0;
    if (left != 0) {
        memcpy(&tail, at, left);
    }
    hash = fold(hash ^ tail, 0x589965cc75374cc3u);
    return ml_hash_u64(hash);
}

size_t
ml_utf8_decode(const unsigned char *bytes, size_t left, unsigned *character)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned first = bytes[0];
    size_t length = first < 0x80   ? 1
                    : first < 0xc2 ? 0
                    : first < 0xe0 ? 2
                    : first < 0xf0 ? 3
                    : first < 0xf5 ? 4
                                   : 0;
    if (length == 0 || length > left) {
        return 0;
    }
    unsigned value = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0u) != 0x80u) {
            return 0;
        }
        value = value << 6 | (bytes[i] & 0x3fu);
    }
    if (value < least[length] || value > 0x10ffff) {
        return 0;
    }
    *character = value;
    return length;
}

size_t
ml_utf8_encode(char *out, unsigned character)
{
    const unsigned c = character;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

size_t
ml_utf8_cut(const char *text, size_t length, size_t most)
{
    if (length <= most) {
        return length;
    }
    size_t end = most;
    while (end > 0 && most - end < ML_UTF8_MAX &&
           ((unsigned char)text[end] & 0xc0) == 0x80) {
        end--;
    }
    return end;
}

void
ml_text_replace_surrogates(char *text, size_t length)
{
    for (size_t i = 0; i + 2 < length; i++) {
        if ((unsigned char)text[i] == 0xed && (unsigned char)text[i + 1] >= 0xa0) {
            memcpy(text + i, "\xef\xbf\xbd", 3);
        }
    }
}

void
ml_buffer_fini(ml_buffer *buffer)
{
    ml_free(buffer->bytes);
    *buffer = (ml_buffer){0};
}

bool
ml_buffer_reserve(ml_buffer *buffer, size_t length)
{
    if (buffer->error == 0 && (length > SIZE_MAX - buffer->length ||
                               ml_grow((void **)&buffer->bytes, &buffer->capacity,
                                       buffer->length + length, 1) != 0)) {
        buffer->error = ML_ENOMEM;
    }
    return buffer->error == 0;
}

void
ml_buffer_append(ml_buffer *buffer, const void *bytes, size_t length)
{
    if (length != 0 && ml_buffer_reserve(buffer, length)) {
        memcpy(buffer->bytes + buffer->length, bytes, length);
        buffer->length += length;
    }
}

void
ml_intern_fini(ml_intern *table)
{
    ml_free(table->slots);
    ml_free(table->hashes);
    *table = (ml_intern){0};
}

int
ml_intern_find(const ml_intern *table, uint64_t hash,
               bool (*equal)(const void *context, uint32_t id), const void *context,
               uint32_t *id)
{
    if (table->slot_count == 0) {
        return 0;
    }
    size_t mask = table->slot_count - 1;
    for (size_t i = (size_t)hash & mask; table->slots[i] != 0; i = (i + 1) & mask) {
        uint32_t candidate = table->slots[i] - 1;
        if (table->hashes[candidate] == hash && equal(context, candidate)) {
            *id = candidate;
            return 1;
        }
    }
    return 0;
}

static void
place(uint32_t *slots, size_t slot_count, uint64_t hash, uint32_t id)
{
    size_t mask = slot_count - 1;
    size_t i = (size_t)hash & mask;
    while (slots[i] != 0) {
        i = (i + 1) & mask;
    }
    slots[i] = id + 1;
}

int
ml_intern_add(ml_intern *table, uint64_t hash)
{
    if (table->count >= UINT32_MAX - 1) {
        return ML_EFULL;
    }
    if (ml_grow((void **)&table->hashes, &table->hash_capacity, table->count + 1,
                sizeof(*table->hashes)) != 0) {
        return ML_ENOMEM;
    }
    /* At most half full, so that an unsuccessful search stays short. */
    if ((table->count + 1) * 2 > table->slot_count) {
        size_t slot_count = table->slot_count != 0 ? table->slot_count * 2 : 64;
        uint32_t *slots = ml_alloc_zeroed(slot_count, sizeof(*slots));
        if (slots == NULL) {
            return ML_ENOMEM;
        }
        for (size_t id = 0; id < table->count; id++) {
            place(slots, slot_count, table->hashes[id], (uint32_t)id);
        }
        ml_free(table->slots);
        table->slots = slots;
        table->slot_count = slot_count;
    }
    table->hashes[table->count] = hash;
    place(table->slots, table->slot_count, hash, (uint32_t)table->count);
    table->count++;
    return 0;
}
