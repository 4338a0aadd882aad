/* What a device of a page ran on.  See page_machine.h. */
#include "show/page/page_machine.h"

#include "gpu/gpu_account.h"
#include "show/text/json.h"

static void
put_account(ml_buffer *out, const ml_gpu_account *account)
{
    ml_json_text(out, "{");
    ml_json_key(out, "used");
    ml_json_signed(out, account->used);
    ml_json_key(out, "after_us");
    ml_json_signed(out, account->after / 1000);
    if (account->total != ML_NOTE_UNKNOWN) {
        ml_json_key_unsigned(out, "total", account->total);
    }
    ml_json_key(out, "lines");
    ml_json_text(out, "{");
    for (unsigned i = 0; i < ML_LINE_COUNT; i++) {
        if (account->known[i]) {
            ml_json_key(out, ml_gpu_account_line_text(i));
            ml_json_signed(out, account->bytes[i]);
        }
    }
    ml_json_text(out, "}}");
}

/* To three decimals, without the C library's floating point, which the page's core lacks.
 * torch's settings are shares: any other value is null. */
static void
put_real(ml_buffer *out, double value)
{
    if (!(value >= 0 && value < 1e12)) {
        ml_json_text(out, "null");
        return;
    }
    uint64_t thousandths = (uint64_t)(value * 1000 + 0.5);
    const char decimals[] = {'.', (char)('0' + thousandths / 100 % 10),
                             (char)('0' + thousandths / 10 % 10),
                             (char)('0' + thousandths % 10), '\0'};
    ml_json_unsigned(out, thousandths / 1000);
    ml_json_text(out, decimals);
}

static void
put_value(ml_buffer *out, const ml_recording *recording, const ml_setting *setting)
{
    switch (setting->kind) {
    case 'b':
        ml_json_text(out, setting->integer != 0 ? "true" : "false");
        break;
    case 'i':
        ml_json_signed(out, setting->integer);
        break;
    case 'f':
        put_real(out, setting->real);
        break;
    case 's':
        ml_json_id(out, recording, setting->text);
        break;
    default:
        ml_json_text(out, "[");
        for (size_t i = 0; i < sizeof(setting->divisions) / sizeof(uint64_t); i++) {
            ml_json_next(out);
            ml_json_unsigned(out, setting->divisions[i]);
        }
        ml_json_text(out, "]");
    }
}

void
ml_page_write_machine(ml_buffer *out, const ml_page_device *device)
{
    const ml_recording *recording = device->part;
    const ml_peak *peak = device->peak;
    ml_gpu_account account;
    uint32_t reason = 0;
    ml_json_key(out, "gpu");
    if (ml_gpu_account_at(recording, (int)device->own, peak->time, &peak->totals,
                          &account, &reason)) {
        put_account(out, &account);
    }
    else {
        ml_json_text(out, "null");
    }
    ml_json_key(out, "gpu_reason");
    ml_json_id(out, recording, reason);
    /* A list of pairs: a key is text of the file. */
    ml_json_key(out, "settings");
    ml_json_text(out, "[");
    for (size_t i = 0; i < recording->setting_count; i++) {
        ml_json_next(out);
        ml_json_text(out, "[");
        ml_json_id(out, recording, recording->settings[i].key);
        ml_json_text(out, ",");
        put_value(out, recording, &recording->settings[i]);
        ml_json_text(out, "]");
    }
    ml_json_text(out, "]");
}
