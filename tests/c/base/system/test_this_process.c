/* This process and its machine, beside what the kernel says another way. */
#define _GNU_SOURCE 1 /* gethostname */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/system/this_process.h"
#include "test.h"

#define MIB ((uint64_t)1 << 20)

static void
test_the_process(void)
{
    CHECK_INT(ml_this_process_id(), getpid());
    /* The test touches 64 MiB of its own. */
    static char touched[64 << 20];
    uint64_t before = ml_this_process_resident();
    memset(touched, 1, sizeof(touched));
    uint64_t after = ml_this_process_resident();
    CHECK(before != UINT64_MAX && after != UINT64_MAX);
    CHECK(after >= before + 60 * MIB);
}

static void
test_the_machine(void)
{
    struct utsname kernel;
    char name[64], cut[3];
    CHECK_INT(uname(&kernel), 0);
    ml_this_process_host(name, sizeof(name));
    CHECK(strncmp(name, kernel.nodename, sizeof(name) - 1) == 0);
    memset(cut, 'x', sizeof(cut));
    ml_this_process_host(cut, sizeof(cut));
    CHECK_INT(cut[2], '\0');
}

static void
test_the_boot(void)
{
    char text[64] = "", again[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    CHECK(file != NULL && fscanf(file, "%63s", text) == 1);
    fclose(file);
    unsigned char boot[ML_BOOT_BYTES];
    ml_this_process_boot(boot);
    for (unsigned i = 0, length = 0; i < ML_BOOT_BYTES; i++) {
        length += (unsigned)snprintf(again + length, sizeof(again) - length, "%s%02x",
                                     strchr("\4\6\10\12", (int)i) && i ? "-" : "",
                                     (unsigned)boot[i]);
    }
    CHECK_STR(again, text);
}

int
main(void)
{
    RUN(test_the_process);
    RUN(test_the_machine);
    RUN(test_the_boot);
    return TEST_RESULT();
}
