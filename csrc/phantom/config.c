/* The phantom's configuration: the GPU table, the environment variables, the banner,
 * and the versions of the loaded CUDA libraries.
 *
 * A version is read from the header beside a library; no library is called. */
#define _GNU_SOURCE
#include "phantom.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpus.h"

static const ml_phantom_gpu gpus[] = {
#define XX(name, full, major, minor, sms, bus, clock, memory_clock, l2, mib, source) \
    {name, \
     full, \
     major, \
     minor, \
     sms, \
     bus, \
     (clock)*1000, \
     (memory_clock)*1000, \
     (size_t)(mib) << 20, \
     (size_t)(l2) << 10},
    ML_PHANTOM_GPUS(XX)
#undef XX
};

static const ml_phantom_capability capabilities[] = {
#define XX(major, minor, threads, blocks, shared, block, reserved) \
    {major, \
     minor, \
     threads, \
     blocks, \
     (size_t)(shared) << 10, \
     (size_t)(block) << 10, \
     (size_t)(reserved) << 10},
    ML_PHANTOM_CAPABILITIES(XX)
#undef XX
};

/* The same table as text.  memlab.phantom finds it in the file by its first line:
 * loading the library would put it before a real libcuda. */
#define TEXT(number) #number
__attribute__((used)) static const char gpu_text[] = "memlab-phantom-gpus 1\n"
#define XX(name, full, major, minor, sms, bus, clock, memory_clock, l2, mib, source) \
    name "\t" full \
         "\t" TEXT(major) "." TEXT(minor) "\t" TEXT(sms) "\t" TEXT(mib) "\t" source \
                                                                        "\n"
    ML_PHANTOM_GPUS(XX)
#undef XX
    ;

static ml_phantom_config config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

void
ml_phantom_refuse(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("memlab phantom: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(2);
}

void
ml_phantom_unanswered(const char *name)
{
    fprintf(stderr,
            "memlab phantom: %s is not answered by the phantom device, on which "
            "results are not computed; please report this name, your torch version "
            "and the operation that led here to memlab's issue tracker\n",
            name);
    abort();
}

static _Atomic(const char *) lacked;

/* Exported for Python, which asks where a program failed. */
ML_EXPORT(const char *, memlab_phantom_lacked, (void))
{
    return atomic_load(&lacked);
}

void
ml_phantom_lacks(atomic_bool *said, const char *name, const char *why)
{
    atomic_store(&lacked, name);
    if (!atomic_exchange(said, true)) {
        fprintf(stderr, "memlab phantom: %s fails on the phantom device: %s\n", name,
                why);
    }
}

/* A whole decimal number between the limits, or -1. */
static long
parse_count(const char *text, long low, long high)
{
    char *end;

    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high) {
        return -1;
    }
    return value;
}

/* The first driver of each CUDA, from CUDA's release notes. */
static const struct {
    int branch, cuda;
} drivers[] = {
    {580, 13000}, {575, 12090}, {570, 12080}, {565, 12070}, {560, 12060}, {555, 12050},
    {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010}, {525, 12000},
};

/* The CUDA of that driver version; 0 for an invalid version, or one too old. */
static int
cuda_of_driver(const char *version)
{
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
        if (atoi(version) >= drivers[i].branch) {
            return drivers[i].cuda;
        }
    }
    return 0;
}

/* Sets the devices that CUDA_VISIBLE_DEVICES leaves visible.  As in the driver, the
 * list ends at the first entry that names no device. */
static void
choose_visible(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    while (list == NULL && config.devices < config.installed) {
        config.ordinals[config.devices] = config.devices;
        config.devices++;
    }
    while (config.devices < config.installed) {
        char *end;
        long device = strtol(list, &end, 10);

        if (end == list || device < 0 || device >= config.installed ||
            (*end != ',' && *end != '\0')) {
            break;
        }
        config.ordinals[config.devices++] = (int)device;
        if (*end == '\0') {
            break;
        }
        list = end + 1;
    }
}

/* The value of the environment's NAME; NULL: there is none, or an empty one. */
static const char *
value_of(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static const ml_phantom_gpu *chosen;
static pthread_once_t chosen_once = PTHREAD_ONCE_INIT;

static void
choose_gpu(void)
{
    const char *name = value_of("MEMLAB_PHANTOM_GPU");

    if (name == NULL) {
        name = gpus[0].name;
    }
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        if (strcmp(gpus[i].name, name) == 0) {
            chosen = &gpus[i];
        }
    }
    if (chosen == NULL) {
        ml_phantom_refuse("MEMLAB_PHANTOM_GPU=%s is not a known GPU; "
                          "memlab phantom --list names those that are",
                          name);
    }
}

const ml_phantom_gpu *
ml_phantom_chosen_gpu(void)
{
    pthread_once(&chosen_once, choose_gpu);
    return chosen;
}

static bool
says(const char *name, const char *text)
{
    const char *value = getenv(name);
    return value != NULL && strcmp(value, text) == 0;
}

static void
read_gpu(void)
{
    config.gpu = ml_phantom_chosen_gpu();
    for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++) {
        if (capabilities[i].major == config.gpu->major &&
            capabilities[i].minor == config.gpu->minor) {
            config.capability = &capabilities[i];
        }
    }

    const char *devices = value_of("MEMLAB_PHANTOM_DEVICES");
    long count = 1;
    if (devices != NULL) {
        count = parse_count(devices, 1, ML_PHANTOM_MAX_DEVICES);
        if (count < 0) {
            ml_phantom_refuse("MEMLAB_PHANTOM_DEVICES=%s is not a number from 1 to %d",
                              devices, ML_PHANTOM_MAX_DEVICES);
        }
    }
    config.installed = (int)count;
    choose_visible();

    const char *memory = value_of("MEMLAB_PHANTOM_MEMORY");
    config.total_bytes = config.gpu->total_bytes;
    if (memory != NULL) {
        long bytes = parse_count(memory, 1, LONG_MAX);
        if (bytes < 0) {
            ml_phantom_refuse("MEMLAB_PHANTOM_MEMORY=%s is not a number of bytes",
                              memory);
        }
        config.total_bytes = (size_t)bytes;
    }
}

static void
read_options(void)
{
    config.backed = says("MEMLAB_PHANTOM_BACKED", "1");
    config.quiet = says("MEMLAB_PHANTOM_QUIET", "1");
    const char *driver = value_of("MEMLAB_PHANTOM_DRIVER");
    if (driver != NULL) {
        if (cuda_of_driver(driver) == 0) {
            ml_phantom_refuse(
                "MEMLAB_PHANTOM_DRIVER=%s is not a version from 525 on, such as "
                "570.86.10",
                driver);
        }
        config.driver = driver;
    }
    const char *draw = value_of("MEMLAB_PHANTOM_DRAW");
    if (draw != NULL) {
        config.draw = parse_count(draw, 0, LONG_MAX);
        if (config.draw < 0) {
            ml_phantom_refuse("MEMLAB_PHANTOM_DRAW=%s is not a number", draw);
        }
    }
}

static void
read_environment(void)
{
    read_gpu();
    read_options();
}

const ml_phantom_config *
ml_phantom_configure(void)
{
    pthread_once(&config_once, read_environment);
    return &config;
}

/* Whether the banner was told, by this process or one that was forked of the same program:
 * they share the page. */
static atomic_flag *told;

__attribute__((constructor)) static void
share_told(void)
{
    void *page = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    told = page != MAP_FAILED ? page : NULL;
}

void
ml_phantom_tell(void)
{
    /* memlab's commands say themselves what they record. */
    bool said = config.quiet || says("MEMLAB_PHANTOM_TOLD", "1");
    /* Of a launcher's processes the first tells it for all. */
    const char *torchrun = getenv("LOCAL_RANK");
    const char *local = torchrun != NULL ? torchrun : getenv("SLURM_LOCALID");
    bool first = local == NULL || strcmp(local, "0") == 0;

    if (said || !first || (told != NULL && atomic_flag_test_and_set(told))) {
        return;
    }
    /* Whether Python computes small ones, beside a bridge to torch, is seen later. */
    bool none = says("MEMLAB_PHANTOM_VALUES", "0");
    fprintf(stderr, "memlab phantom: %d x %s, %.2f GiB each; kernels do nothing: %s\n",
            config.devices, config.gpu->full_name,
            (double)config.total_bytes / (double)(1 << 30),
            none ? "results are not computed" : "at most small results are computed");
}

void *
ml_phantom_handle(void)
{
    static _Atomic uintptr_t next = 0x1000;

    return (void *)atomic_fetch_add(&next, 16);
}

/* --- Versions ------------------------------------------------------------- */

typedef struct {
    const char *library; /* start of the file's name */
    char path[PATH_MAX]; /* where it was loaded from; empty: not loaded */
} loaded_library;

static int
match_library(struct dl_phdr_info *info, size_t size, void *data)
{
    loaded_library *wanted = data;
    const char *slash = strrchr(info->dlpi_name, '/');

    (void)size;
    if (slash == NULL ||
        strncmp(slash + 1, wanted->library, strlen(wanted->library)) != 0 ||
        strlen(info->dlpi_name) >= sizeof wanted->path) {
        return 0;
    }
    strcpy(wanted->path, info->dlpi_name);
    return 1;
}

/* The number that `macro` has in ../include/`header` beside the loaded library; -1 if
 * library, header or macro is missing. */
static long
header_number(const char *library, const char *header, const char *macro)
{
    loaded_library wanted = {.library = library};
    char path[PATH_MAX + 64], line[512];
    long value = -1;

    if (!dl_iterate_phdr(match_library, &wanted)) {
        return -1;
    }
    *strrchr(wanted.path, '/') = '\0';
    snprintf(path, sizeof path, "%s/../include/%s", wanted.path, header);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return -1;
    }
    while (value < 0 && fgets(line, sizeof line, file)) {
        char name[64];
        long number;

        if (sscanf(line, " # define %63s %ld", name, &number) == 2 &&
            strcmp(name, macro) == 0) {
            value = number;
        }
    }
    fclose(file);
    return value;
}

/* The major version in the name of the loaded runtime library: libcudart.so.N. */
static int
runtime_major(void)
{
    loaded_library wanted = {.library = "libcudart.so."};

    if (!dl_iterate_phdr(match_library, &wanted)) {
        return 13;
    }
    return atoi(strrchr(wanted.path, '/') + 1 + strlen(wanted.library));
}

int
ml_phantom_cuda_version(void)
{
    static _Atomic int version;

    if (version == 0) {
        long number =
            header_number("libcudart.so.", "cuda_runtime_api.h", "CUDART_VERSION");
        version = number > 0 ? (int)number : runtime_major() * 1000;
    }
    return version;
}

int
ml_phantom_driver_cuda(void)
{
    const char *driver = ml_phantom_configure()->driver;

    return driver != NULL ? cuda_of_driver(driver) : ml_phantom_cuda_version();
}

size_t
ml_phantom_cudnn_version(void)
{
    static _Atomic size_t version;

    if (version == 0) {
        const char *header = "cudnn_version.h";
        long major = header_number("libcudnn.so.", header, "CUDNN_MAJOR");
        long minor = header_number("libcudnn.so.", header, "CUDNN_MINOR");
        long patch = header_number("libcudnn.so.", header, "CUDNN_PATCHLEVEL");

        /* torch refuses a cuDNN older than that of its build, so without the header the
         * answer is a high version. */
        version = major > 0 && minor >= 0 && patch >= 0
                      ? (size_t)(major * 10000 + minor * 100 + patch)
                      : 99900;
    }
    return version;
}

int
ml_phantom_nccl_version(void)
{
    static _Atomic int version;

    if (version == 0) {
        long code = -1;
        long major = header_number("libnccl.so.", "nccl.h", "NCCL_MAJOR");
        long minor = header_number("libnccl.so.", "nccl.h", "NCCL_MINOR");
        long patch = header_number("libnccl.so.", "nccl.h", "NCCL_PATCH");

        if (major > 0 && minor >= 0 && patch >= 0) {
            code = major * 10000 + minor * 100 + patch;
        }
        /* Without the header: the version of torch 2.11, whose memory was measured. */
        version = code > 0 ? (int)code : 22809;
    }
    return version;
}
