/* Packs a ledger so that another can continue from it.  See ledger.h. */
#include "base/base.h"
#include "ledger/ledger_parts.h"

struct ml_ledger_image {
    ml_totals peak;
    uint64_t events;
    uint64_t inconsistencies;
    uint64_t full;
    uint32_t seed_rest;
    uint32_t requested;
    bool unsure;
    unsigned char blocks[]; /* as packed by blocks_image.c */
};

size_t
ml_ledger_image_bytes(const ml_ledger *ledger)
{
    return sizeof(ml_ledger_image) + ml_blocks_image_bytes(&ledger->blocks);
}

ml_ledger_image *
ml_ledger_save(const ml_ledger *ledger)
{
    ml_ledger_image *image = ml_alloc(ml_ledger_image_bytes(ledger));
    if (image != NULL) {
        *image = (ml_ledger_image){.peak = ledger->peak,
                                   .events = ledger->events,
                                   .inconsistencies = ledger->inconsistencies,
                                   .full = ledger->full,
                                   .seed_rest = ledger->seed_rest,
                                   .requested = ledger->requested,
                                   .unsure = ledger->unsure};
        ml_blocks_save(&ledger->blocks, image->blocks);
    }
    return image;
}

void
ml_ledger_load(ml_ledger *ledger, const ml_ledger_image *image)
{
    ledger->peak = image->peak;
    ledger->events = image->events;
    ledger->inconsistencies = image->inconsistencies;
    ledger->full = image->full;
    ledger->seed_rest = image->seed_rest;
    ledger->requested = image->requested;
    ledger->named = false;
    ledger->unsure = image->unsure;
    ml_blocks_load(&ledger->blocks, image->blocks);
    ml_ledger_publish(ledger, true, true);
}
