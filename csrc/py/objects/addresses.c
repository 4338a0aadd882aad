/* A map from addresses to small numbers.  See addresses.h. */
#include "objects/addresses.h"

#include "core/base/base.h"

static ml_address *
place_of(const ml_addresses *map, uint64_t address)
{
    size_t at = ml_hash_u64(address) & map->mask;

    while (map->places[at].address != 0 && map->places[at].address != address) {
        at = (at + 1) & map->mask;
    }
    return &map->places[at];
}

void
ml_addresses_fini(ml_addresses *map)
{
    ml_free(map->places);
    *map = (ml_addresses){0};
}

size_t *
ml_addresses_find(const ml_addresses *map, uint64_t address)
{
    if (map->places == NULL) {
        return NULL;
    }
    ml_address *place = place_of(map, address);
    return place->address == address ? &place->number : NULL;
}

int
ml_addresses_reserve(ml_addresses *map, size_t count)
{
    size_t mask = map->places != NULL ? map->mask : 1023;

    /* At most half full, so that an unsuccessful search stays short. */
    while (mask < SIZE_MAX / 2 && 2 * count > mask) {
        mask = 2 * mask + 1;
    }
    if (map->places != NULL && mask == map->mask) {
        return 0;
    }
    ml_addresses larger = {.mask = mask, .count = map->count};
    larger.places = ml_alloc_zeroed(larger.mask + 1, sizeof(*larger.places));
    if (larger.places == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; map->places != NULL && i <= map->mask; i++) {
        if (map->places[i].address != 0) {
            *place_of(&larger, map->places[i].address) = map->places[i];
        }
    }
    ml_free(map->places);
    *map = larger;
    return 0;
}

int
ml_addresses_add(ml_addresses *map, uint64_t address, size_t number)
{
    if (ml_addresses_reserve(map, map->count + 1) < 0) {
        return ML_ENOMEM;
    }
    ml_address *place = place_of(map, address);
    if (place->address == address) {
        return 0;
    }
    *place = (ml_address){.address = address, .number = number};
    map->count++;
    return 1;
}
