/* Owns the callback that gives the phantom's memory values: after each operator of torch
 * it carries the operator out on the host, where what it works on is small.
 *
 * torch tells of every operator, with its arguments and results.  The device's own
 * operator runs too, and allocates as it always does; this one allocates only on the
 * host.  No failure reaches the program: a value that could not be computed is not
 * known. */
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/roll.h>

#include "bridge.h"
#include "sources/callbacks.h"
#include "values.h"

namespace memlab {

namespace {

/* Where among n equal values a pick begins.  Programs use the first and the last ones for
 * ends and padding; no multiple of 1 / n falls there. */
constexpr double FIRST_PICK = 0.6180339887498949;

std::atomic<bool> on{false};
std::atomic<bool> used{false}; /* some operator had to do with the device */

struct Work : at::ObserverContext {
    std::shared_ptr<const Plan> plan;
    Task task = Task::PASS;
    c10::Stack stack;
    std::vector<std::pair<size_t, std::shared_ptr<Twin>>> twins; /* of which argument */
    std::vector<at::Tensor> written; /* tensors of the device that it changes */
    int64_t picked_from = 0;         /* equal values among which it picks; 0: none */
    int64_t tallied = 0;             /* values that it tallies; 0: none */
    unsigned char kind = KNOWN;      /* the lowest of what it reads */
    unsigned long long writes = 0;   /* earlier writes of this thread */
    unsigned char filler[16];
    size_t width = 0;
    Work *outer = nullptr; /* the read around it */
    long long answer = 0;
    bool answers = false;
};

thread_local Work *reading;
thread_local unsigned long long writes;

/* --- Arguments ------------------------------------------------------------------------ */

/* Calls VISIT with each tensor of VALUE.  False: one call said so. */
template <class Visit>
bool
each_tensor(const c10::IValue &value, Visit visit)
{
    if (value.isTensor()) {
        return !value.toTensor().defined() || visit(value.toTensor());
    }
    if (value.isList()) {
        for (const c10::IValue &item : value.toListRef()) {
            if (item.isTensor() && item.toTensor().defined() &&
                !visit(item.toTensor())) {
                return false;
            }
        }
    }
    return true;
}

/* Whether the operator has to do with the device at all. */
bool
concerns_device(c10::ArrayRef<const c10::IValue> inputs)
{
    for (const c10::IValue &input : inputs) {
        if (input.isDevice() && input.toDevice().is_cuda()) {
            return true;
        }
        if (!each_tensor(input,
                         [](const at::Tensor &each) { return !each.is_cuda(); })) {
            return true;
        }
    }
    return false;
}

/* Whether another layer of torch will call the operator again, nearer to its kernel. */
bool
is_seen_again(const Plan &made)
{
    const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    constexpr c10::DispatchKeySet layers{
        c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
        c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
        c10::DispatchKey::Functionalize};
    return keys.included_.has_any(layers) ||
           (made.casts && !keys.excluded_.has(c10::DispatchKey::AutocastCUDA));
}

at::Tensor
twin_of(Work &work, size_t argument, const at::Tensor &tensor)
{
    if (!tensor.is_cuda()) {
        return tensor;
    }
    auto twin = std::make_shared<Twin>(tensor);
    if (work.plan->reads[argument]) {
        work.kind = std::min(work.kind, twin->kind);
    }
    work.twins.emplace_back(argument, twin);
    return twin->value;
}

c10::IValue
convert(Work &work, size_t argument, const c10::IValue &value)
{
    if (value.isTensor()) {
        return value.toTensor().defined()
                   ? c10::IValue(twin_of(work, argument, value.toTensor()))
                   : value;
    }
    if (value.isDevice()) {
        return c10::Device(c10::kCPU);
    }
    if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const c10::IValue &item : value.toListRef()) {
            list.push_back(twin_of(work, argument, item.toTensor()));
        }
        return list;
    }
    if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const c10::IValue &item : value.toListRef()) {
            if (item.isTensor() && item.toTensor().defined()) {
                list.push_back(twin_of(work, argument, item.toTensor()));
            }
            else {
                list.push_back(std::nullopt);
            }
        }
        return list;
    }
    if (static_cast<int>(argument) == work.plan->generator) {
        return host_generator();
    }
    return value;
}

/* Notes the memory that the operator changes.  Returns whether all its tensors are small
 * enough, and of a kind, to be computed. */
bool
look(Work &work, c10::ArrayRef<const c10::IValue> inputs)
{
    bool possible = true;
    for (size_t i = 0; i < inputs.size(); i++) {
        const bool writes_it = work.plan->writes[i];
        each_tensor(inputs[i], [&](const at::Tensor &each) {
            const bool plain = is_plain(each);
            possible = possible && plain && !(writes_it && !each.is_cuda()) &&
                       (is_small(each) || (work.plan->pointwise && !writes_it));
            if (writes_it && plain && each.is_cuda()) {
                work.written.push_back(each);
            }
            return true;
        });
    }
    return possible;
}

/* --- Picks ------------------------------------------------------------------------------ */

/* The dimension of input 0 in which the operator picks; -1: it picks of all. */
int64_t
dimension(const Work &work, const c10::IValue *inputs, int64_t dims)
{
    const int argument = work.plan->picks_dim;
    if (argument < 0 && work.plan->name != "aten::multinomial") {
        return -1;
    }
    if (argument >= 0 && inputs[argument].isNone()) {
        return -1;
    }
    const int64_t dim = argument < 0 ? -1 : inputs[argument].toInt();
    return dims == 0 ? -1 : (dim + dims) % dims;
}

int64_t
first_pick(int64_t count)
{
    return static_cast<int64_t>(static_cast<double>(count) * FIRST_PICK);
}

/* The result of a pick of COUNT values that are not known: neighbours from the first on. */
void
give_picks(const at::Tensor &result, int64_t count, int64_t dim, bool several)
{
    at::Tensor picks = at::full({}, first_pick(count), at::kLong);
    if (several && result.dim() > 0) {
        const int64_t along = dim < 0 ? result.dim() - 1 : dim;
        std::vector<int64_t> shape(static_cast<size_t>(result.dim()), 1);
        shape[static_cast<size_t>(along)] = -1;
        picks = (at::arange(result.size(along), at::kLong).view(shape) + picks) % count;
    }
    Twin twin(result);
    twin.value.copy_(picks.expand(result.sizes()));
    twin.give_back(MADE_UP);
}

/* The tally of COUNT values that are not known: as many of each, so that the sum holds. */
at::Tensor
even_tally(const at::Tensor &like, int64_t count)
{
    const int64_t bins = std::max<int64_t>(like.numel(), 1);
    const at::Tensor number = at::arange(like.numel(), at::kLong);
    return (number < count % bins)
        .to(at::kLong)
        .add(count / bins)
        .to(like.scalar_type());
}

/* --- The begin -------------------------------------------------------------------------- */

void
begin_read(Work &work, const at::Tensor &from)
{
    work.task = Task::READ;
    work.width = make_up(from.scalar_type(), work.filler);
    work.outer = reading;
    reading = &work;
    contents()->reading(work.filler, work.width);
}

/* Tells a kernel's count to the operator that will read it. */
void
begin_count(Work &work)
{
    c10::Stack stack(work.stack);
    work.plan->op->callBoxed(&stack);
    const at::Tensor &first = stack.at(0).toTensor();
    const bool by_dim = work.plan->name.find("_dim") != std::string::npos;
    const int64_t dim = by_dim ? work.stack.at(1).toInt() : 0;
    work.answer = first.size(dim < 0 ? dim + first.dim() : dim);
    work.answers = true;
    contents()->answer(&work.answer);
}

void
begin(Work &work, const at::RecordFunction &fn)
{
    work.plan = plan(fn);
    const Plan &made = *work.plan;
    if (made.task == Task::PASS || fn.inputs().size() < made.arguments) {
        return;
    }
    const auto inputs = fn.inputs().slice(fn.inputs().size() - made.arguments);
    if (!concerns_device(inputs) || is_seen_again(made)) {
        return;
    }
    used.store(true, std::memory_order_relaxed);
    work.writes = writes;
    const HostOnly host;
    if (made.task == Task::READ ||
        (made.task == Task::COPY && !inputs[0].toTensor().is_cuda())) {
        const at::Tensor &from = inputs[made.task == Task::READ ? 0 : 1].toTensor();
        if (is_plain(from)) {
            begin_read(work, from);
        }
        return;
    }
    work.task = Task::FORGET;
    if (made.picks >= 0 && is_plain(inputs[0].toTensor())) {
        const at::Tensor &from = inputs[0].toTensor();
        const int64_t dim = dimension(work, inputs.data(), from.dim());
        work.picked_from = dim < 0 ? from.numel() : from.size(dim);
    }
    if (made.tallies && (made.name == "aten::histc" || inputs[1].isNone())) {
        work.tallied = inputs[0].toTensor().numel();
    }
    if (!look(work, inputs) || made.task == Task::FORGET) {
        return;
    }
    for (size_t i = 0; i < inputs.size(); i++) {
        work.stack.push_back(convert(work, i, inputs[i]));
    }
    work.task = Task::COMPUTE;
    if (made.counts) {
        begin_count(work);
    }
}

/* --- The end ---------------------------------------------------------------------------- */

void
end_read(Work &work)
{
    reading = work.outer;
    const size_t made_up = contents()->reading(reading ? reading->filler : work.filler,
                                               reading ? reading->width : 0);
    if (made_up > 0) {
        note_place(made_up);
    }
}

/* Puts VALUE into RESULT, a tensor of the device. */
void
give(const at::Tensor &result, const at::Tensor &value, unsigned char kind)
{
    if (!at::is_expandable_to(value.sizes(), result.sizes()) ||
        result.scalar_type() != value.scalar_type()) {
        forget(result);
        return;
    }
    Twin twin(result);
    twin.value.copy_(value);
    if (kind == MADE_UP && twin.value.is_floating_point()) {
        /* What is made up is always a number. */
        const double most = std::numeric_limits<double>::infinity();
        at::nan_to_num_(twin.value, 0.5, most, -most);
    }
    twin.give_back(kind);
}

/* Equal values that are made up: torch picks the first, here it is one from the midst.
 * The input is turned, and the picks with it. */
void
compute(Work &work, c10::ArrayRef<const c10::IValue> results)
{
    const Plan &made = *work.plan;
    const bool turned = made.picks >= 0 && work.kind != KNOWN && work.picked_from > 1 &&
                        made.name != "aten::multinomial";
    const int64_t shift = first_pick(work.picked_from);
    if (turned) {
        const at::Tensor from = work.stack[0].toTensor();
        const int64_t dim = dimension(work, work.stack.data(), from.dim());
        work.stack[0] = dim < 0 ? at::roll(from, -shift) : at::roll(from, -shift, dim);
    }
    made.op->callBoxed(&work.stack);
    const unsigned char kind = work.kind == KNOWN ? KNOWN : MADE_UP;
    for (const auto &[argument, twin] : work.twins) {
        if (made.writes[argument]) {
            twin->give_back(kind);
        }
    }
    for (size_t i = 0; i < results.size(); i++) {
        std::vector<at::Tensor> values;
        each_tensor(work.stack.at(i), [&](const at::Tensor &each) {
            values.push_back(each);
            return true;
        });
        size_t at = 0;
        each_tensor(results[i], [&](const at::Tensor &each) {
            at::Tensor value = values.at(at++);
            if (turned && static_cast<int>(i) == made.picks) {
                value = (value + shift) % work.picked_from;
            }
            if (work.kind == UNKNOWN && made.name == "aten::all") {
                value = at::ones_like(value); /* as where it is not computed */
            }
            if (work.kind == UNKNOWN && work.tallied > 0) {
                value = even_tally(value, work.tallied);
            }
            give(each, value, kind);
            return true;
        });
    }
    writes++;
}

/* The operator's results are not known, but for a few that have to be valid. */
void
leave(Work &work, c10::ArrayRef<const c10::IValue> results)
{
    const Plan &made = *work.plan;
    const bool own = made.name.compare(0, 6, "aten::") == 0;
    if (!own && writes != work.writes) {
        return; /* it consists of operators that are known */
    }
    if (made.name == "aten::_amp_foreach_non_finite_check_and_unscale_") {
        /* What is made up is finite: the flag stays. */
        work.written.pop_back();
        work.written.pop_back();
    }
    for (const at::Tensor &each : work.written) {
        forget(each);
    }
    for (size_t i = 0; i < results.size(); i++) {
        each_tensor(results[i], [&](const at::Tensor &each) {
            if (is_plain(each) && each.is_cuda()) {
                forget(each);
                if (static_cast<int>(i) == made.picks && work.picked_from > 1 &&
                    is_small(each)) {
                    give_picks(each, work.picked_from, -1, made.several);
                }
                if (made.name == "aten::all" && is_small(each)) {
                    Twin twin(each);
                    twin.value.fill_(true);
                    twin.give_back(MADE_UP);
                }
                if (work.tallied > 0 && is_small(each)) {
                    Twin twin(each);
                    twin.value.copy_(even_tally(each, work.tallied));
                    twin.give_back(MADE_UP);
                }
            }
            return true;
        });
    }
}

void
end(Work &work, const at::RecordFunction &fn)
{
    if (work.answers) {
        contents()->answer(nullptr);
    }
    if (work.task == Task::READ) {
        end_read(work);
        return;
    }
    if (work.task == Task::PASS) {
        return;
    }
    const HostOnly host;
    c10::ArrayRef<const c10::IValue> results(fn.outputs().data(), fn.outputs().size());
    const size_t count = work.plan->results;
    results = results.size() >= count ? results.slice(results.size() - count)
                                      : c10::ArrayRef<const c10::IValue>();
    bool possible = work.task == Task::COMPUTE && results.size() == count;
    size_t tensors = work.written.size();
    for (const c10::IValue &result : results) {
        possible =
            each_tensor(result,
                        [&](const at::Tensor &each) {
                            tensors++;
                            return is_plain(each) && each.is_cuda() && is_small(each);
                        }) &&
            possible;
    }
    if (tensors == 0) {
        return;
    }
    if (possible) {
        try {
            compute(work, results);
            return;
        }
        catch (...) {
            /* As if it had not been tried. */
        }
    }
    leave(work, results);
}

std::unique_ptr<at::ObserverContext>
on_begin(const at::RecordFunction &fn)
{
    if (!on.load(std::memory_order_relaxed) || Unseen::lives()) {
        return nullptr;
    }
    std::unique_ptr<Work> work(new (std::nothrow) Work);
    if (work == nullptr) {
        return nullptr;
    }
    contents()->operators(+1);
    try {
        begin(*work, fn);
    }
    catch (...) {
        work->task = work->task == Task::COMPUTE ? Task::FORGET : work->task;
    }
    return work;
}

void
on_end(const at::RecordFunction &fn, at::ObserverContext *context)
{
    auto *work = static_cast<Work *>(context);
    if (work == nullptr) {
        return;
    }
    try {
        end(*work, fn);
    }
    catch (...) {
        /* The rest is not known. */
    }
    contents()->operators(-1);
}

} // namespace
} // namespace memlab

extern "C" {

int
ml_values_watch(void)
{
    static bool watches;
    if (watches) {
        return 1;
    }
    if (memlab::contents() == nullptr || memlab::contents()->use() == 0) {
        return 0;
    }
    try {
        const memlab::callbacks::ChangeForAll change;
        at::addGlobalCallback(
            at::RecordFunctionCallback(memlab::on_begin, memlab::on_end)
                .needsInputs(true)
                .needsOutputs(true)
                .scopes({at::RecordScope::FUNCTION}));
    }
    catch (...) {
        return ML_ENOMEM;
    }
    memlab::on.store(true);
    watches = true;
    return 1;
}

void
ml_values_forked(void)
{
    /* A thread that does not exist here may hold the contents' lock. */
    if (memlab::used.load(std::memory_order_relaxed)) {
        memlab::on.store(false, std::memory_order_relaxed);
    }
}

} /* extern "C" */
