/* Places of an advice.  See advice_places.h. */
#include "lab/advice/advice_places.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/peak_groups.h"
#include "analysis/attribution/module_repeats.h"
#include "base/base.h"

static const char between[] = ", ";

static ml_string
first_of(const char *places)
{
    return (ml_string){places, (uint32_t)strcspn(places, ",")};
}

/* The places behind the first; NULL: there are none. */
static const char *
rest_of(const char *places)
{
    const char *end = places + first_of(places).length;
    return *end == 0 ? NULL : end + strlen(between);
}

bool
ml_places_nest(const char *places, const char *path)
{
    size_t length = strlen(path);
    for (const char *at = places; at != NULL; at = rest_of(at)) {
        size_t own = first_of(at).length;
        size_t least = own < length ? own : length;
        bool same = memcmp(at, path, least) == 0;
        if (same && (own == length || (own < length ? path : at)[least] == '.')) {
            return true;
        }
    }
    return false;
}

static void
append_text(ml_buffer *out, const char *text)
{
    ml_buffer_append(out, text, strlen(text));
}

/* What OUT has, ended, becomes *PLACES. */
static int
become(char **places, ml_buffer *out)
{
    ml_buffer_append(out, "", 1);
    if (out->error != 0) {
        int error = out->error;
        ml_buffer_fini(out);
        return error;
    }
    ml_free(*places);
    *places = out->bytes;
    return 0;
}

int
ml_places_add(char **places, const char *more)
{
    ml_buffer out = {0};
    append_text(&out, *places);
    append_text(&out, between);
    append_text(&out, more);
    return become(places, &out);
}

/* ---- Places that differ in a number ---- */

/* More are left as they are: of so many families not one is tried. */
#define MOST_PLACES 16

/* A place around one of its numbers. */
typedef struct around {
    ml_string before;
    ml_string number;
    ml_string after;
} around;

typedef struct list {
    ml_string places[MOST_PLACES];
    size_t count;
    bool told[MOST_PLACES];
} list;

/* PLACE around its first number from *FROM on, which is moved behind it.  False: it has none. */
static bool
split(ml_string place, size_t *from, around *out)
{
    size_t number;
    size_t end = ml_path_number(place, *from, &number);
    if (end == 0) {
        return false;
    }
    *out = (around){{place.bytes, (uint32_t)number},
                    {place.bytes + number, (uint32_t)(end - number)},
                    {place.bytes + end, place.length - (uint32_t)end}};
    *from = end + 1;
    return true;
}

/* Whether PLACE is as OF but for the number, which is *NUMBER then. */
static bool
is_alike(const around *of, ml_string place, ml_string *number)
{
    around its;
    for (size_t from = 0; split(place, &from, &its);) {
        if (ml_string_compare(its.before, of->before) == 0 &&
            ml_string_compare(its.after, of->after) == 0) {
            *number = its.number;
            return true;
        }
    }
    return false;
}

/* Sets NUMBERS to those of the places of ALL that are as OF and not told yet. */
static size_t
numbers_of(const list *all, const around *of, ml_string numbers[MOST_PLACES])
{
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++) {
        if (!all->told[i] && is_alike(of, all->places[i], &numbers[count])) {
            count++;
        }
    }
    return count;
}

static int
compare_numbers(const void *a, const void *b)
{
    const ml_string *x = a;
    const ml_string *y = b;
    if (x->length != y->length) {
        return x->length < y->length ? -1 : 1;
    }
    return ml_string_compare(*x, *y);
}

/* Writes place INDEX with those that differ from it in the number in which most do. */
static void
put_place(ml_buffer *out, list *all, size_t index)
{
    ml_string place = all->places[index];
    ml_string numbers[MOST_PLACES];
    around of, best = {.before = place};
    size_t most = 1;
    for (size_t from = 0; split(place, &from, &of);) {
        size_t count = numbers_of(all, &of, numbers);
        if (count > most) {
            most = count;
            best = of;
        }
    }
    ml_buffer_append(out, best.before.bytes, best.before.length);
    if (most == 1) {
        return;
    }
    numbers_of(all, &best, numbers);
    qsort(numbers, most, sizeof(*numbers), compare_numbers);
    for (size_t i = 0; i < most; i++) {
        append_text(out, i == 0 ? "{" : ",");
        ml_buffer_append(out, numbers[i].bytes, numbers[i].length);
    }
    append_text(out, "}");
    ml_buffer_append(out, best.after.bytes, best.after.length);
    for (size_t i = 0; i < all->count; i++) {
        ml_string number;
        all->told[i] = all->told[i] || is_alike(&best, all->places[i], &number);
    }
}

int
ml_places_fold(char **places)
{
    list all = {.count = 0};
    for (const char *at = *places; at != NULL; at = rest_of(at)) {
        if (all.count == MOST_PLACES) {
            return 0;
        }
        all.places[all.count++] = first_of(at);
    }
    ml_buffer out = {0};
    for (size_t i = 0; i < all.count; i++) {
        if (!all.told[i]) {
            append_text(&out, out.length != 0 ? between : "");
            put_place(&out, &all, i);
        }
    }
    return become(places, &out);
}

/* ---- A place for each part of a program ---- */

/* With more, one place has all. */
#define MOST_PARTS 4

/* The first part of PATH; a number is like any other. */
static ml_string
top_of(ml_string path)
{
    const char *dot = memchr(path.bytes, '.', path.length);
    uint32_t length = dot != NULL ? (uint32_t)(dot - path.bytes) : path.length;
    uint32_t digits = 0;
    while (digits < length && path.bytes[digits] >= '0' && path.bytes[digits] <= '9') {
        digits++;
    }
    return digits == length ? (ml_string){"*", 1} : (ml_string){path.bytes, length};
}

/* Appends PLACE, widened so that PATH fits, too. */
static void
append_wider(ml_buffer *out, ml_string place, ml_string path)
{
    char *wider = NULL;
    int error = ml_module_note(&wider, place);
    if (error == 0) {
        ml_module_widen(wider, path);
        append_text(out, wider);
    }
    else {
        out->error = error;
    }
    ml_free(wider);
}

static void
append_place(ml_buffer *out, ml_string place)
{
    ml_buffer_append(out, place.bytes, place.length);
}

int
ml_places_widen(char **places, ml_string path)
{
    ml_buffer out = {0};
    size_t count = 0;
    bool found = false;
    for (const char *at = *places; at != NULL; at = rest_of(at)) {
        ml_string place = first_of(at);
        ml_string top = top_of(place);
        append_text(&out, count++ == 0 ? "" : between);
        if (!found &&
            (*top.bytes == '*' || ml_string_compare(top, top_of(path)) == 0)) {
            found = true;
            append_wider(&out, place, path);
        }
        else {
            append_place(&out, place);
        }
    }
    if (!found && count == MOST_PARTS) {
        out.length = 0;
        append_wider(&out, first_of(*places), path);
    }
    else if (!found) {
        append_text(&out, count == 0 ? "" : between);
        append_place(&out, path);
    }
    return become(places, &out);
}

uint64_t
ml_module_pattern(const ml_string *path)
{
    uint64_t hash = 0;
    bool number = false;
    for (uint32_t i = 0; i < path->length; i++) {
        char c = path->bytes[i];
        bool digit = c >= '0' && c <= '9';
        if (!digit || !number) {
            hash = ml_hash_u64(hash ^ (digit ? '0' : (unsigned char)c)) + 1;
        }
        number = digit;
    }
    return hash;
}
