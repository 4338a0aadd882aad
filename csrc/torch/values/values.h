/* What the files of this room share: contents of the phantom's memory, tensors of the
 * host that stand for the device's, and what is to be done for an operator. */
#ifndef ML_VALUES_H
#define ML_VALUES_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/Generator.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

namespace memlab {

/* --- value_contents.cpp: the functions of csrc/phantom/driver/contents.c ----------- */

/* Kinds of a byte, as there. */
constexpr unsigned char UNKNOWN = 0, MADE_UP = 1, KNOWN = 2;

struct Contents {
    int (*use)();
    void (*operators)(int change);
    void (*get)(uintptr_t start, unsigned char *content, unsigned char *kinds,
                size_t bytes);
    void (*put)(uintptr_t start, const unsigned char *content,
                const unsigned char *kinds, size_t bytes);
    void (*forget)(uintptr_t start, size_t bytes);
    size_t (*reading)(const unsigned char *filler, size_t width);
    void (*answer)(const long long *answer);
};

/* NULL: this process is not on the phantom device. */
const Contents *contents();

/* --- value_tensors.cpp ---------------------------------------------------------------- */

/* What fills up values of `type` that are not known: 0, false, or for a float 0.5.  A
 * probability, a scale and a loss of 0.5 are valid, it is in the range of every float,
 * and exact there.  Returns the width of a value in bytes. */
size_t make_up(c10::ScalarType type, unsigned char filler[16]);

/* Whether TENSOR's memory is the values that it has: no wrapper, no fake, no view that
 * conjugates. */
bool is_plain(const at::Tensor &tensor);

/* Whether values of TENSOR are computed: up to 1 MiB, of floats 64 KiB. */
bool is_small(const at::Tensor &tensor);

/* Forgets what a tensor of the device holds. */
void forget(const at::Tensor &tensor);

/* A tensor of the host with the values of one of the device's; with one value, if that is
 * not small: nothing is known of it, and all of them are the same. */
class Twin {
  public:
    explicit Twin(const at::Tensor &of);
    at::Tensor value;
    unsigned char kind; /* the lowest of its values */
    /* The device's tensor now has the twin's values, of the kind AS. */
    void give_back(unsigned char as);

  private:
    unsigned char lowest() const;
    uintptr_t start;
    at::Tensor content;               /* bytes of the memory that the tensor spans */
    std::vector<unsigned char> kinds; /* of these bytes; empty: it spans too many */
    std::vector<int64_t> sizes, strides;
};

/* --- value_operators.cpp -------------------------------------------------------------- */

enum class Task {
    PASS,    /* the operators within, if any, say it all */
    READ,    /* one value goes to the host */
    COPY,    /* it may read, or else is computed */
    COMPUTE, /* on the host */
    FORGET,  /* its results are not known */
};

struct Plan {
    std::string name; /* with the namespace */
    Task task = Task::PASS;
    std::optional<c10::OperatorHandle> op;
    size_t arguments = 0, results = 0;
    int generator = -1;       /* index of that argument */
    std::vector<bool> writes; /* whether it writes each argument */
    std::vector<bool> reads;  /* whether it reads it */
    bool pointwise = false;   /* value by value */
    bool casts = false;       /* autocast calls it again */
    bool counts = false;      /* its result's size is counted by a kernel */
    int picks = -1;           /* index of a result that has indices of input 0 */
    int picks_dim = -1;       /* argument with the dimension; -1: the last */
    bool several = false;     /* it picks more than one */
    bool tallies = false; /* its result says how many of input 0 there are of each */
};

/* What to do for the operator that FN is about; the same for each of its calls. */
std::shared_ptr<const Plan> plan(const at::RecordFunction &fn);

/* While it lives, no callback is told of this thread's operators.  In a child that inherited
 * memlab's callbacks those of others are: to hide them takes torch's lock, which a thread that is
 * not there may hold. */
class Unseen {
  public:
    Unseen();
    Unseen(const Unseen &) = delete;
    Unseen &operator=(const Unseen &) = delete;
    ~Unseen();
    /* Whether one lives on this thread. */
    static bool lives();

  private:
    bool within; /* another */
    std::optional<at::RecordFunctionGuard> guard;
};

/* While it lives, this thread's operators are the host's alone: no autograd, no mode, no
 * callback and no warning of the program's sees them. */
class HostOnly {
  public:
    HostOnly();

  private:
    Unseen unseen;
    c10::impl::ForceDispatchKeyGuard keys;
    c10::WarningHandler silence;
    c10::WarningUtils::WarningHandlerGuard warnings;
};

/* The generator of random numbers of this room; the program's own is left alone. */
at::Generator host_generator();

/* --- value_places.cpp ------------------------------------------------------------------- */

/* The program reads COUNT values that are made up, in the line that runs now. */
void note_place(size_t count);

} // namespace memlab

#endif
