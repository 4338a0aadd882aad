/* Owns what is to be done for each operator of torch, by its schema and its kernels. */
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include <ATen/CPUGeneratorImpl.h>

#include "sources/callbacks.h"
#include "values.h"

namespace memlab {

namespace {

/* These change what a tensor is and not its values, or have the values of the host. */
constexpr std::array PASSED{
    "aten::resize_",       "aten::resize_as_",      "aten::set_",
    "aten::record_stream", "aten::_resize_output_", "aten::_pin_memory",
};

/* Memory as it comes. */
constexpr std::array EMPTY{"aten::empty", "aten::empty_strided", "aten::empty_like"};

/* These do not read what they write. */
constexpr std::array OVERWRITES{
    "aten::copy_",    "aten::fill_",      "aten::zero_",       "aten::random_",
    "aten::uniform_", "aten::normal_",    "aten::log_normal_", "aten::exponential_",
    "aten::cauchy_",  "aten::geometric_", "aten::bernoulli_",
};

/* The size of a result is the number that a kernel counts and the host reads. */
constexpr std::array COUNTED{
    "aten::nonzero", "aten::_unique2",           "aten::unique_dim",
    "aten::_unique", "aten::unique_consecutive", "aten::unique_dim_consecutive",
};

template <size_t N>
bool
is_one_of(const std::array<const char *, N> &names, const std::string &name)
{
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool
starts(const std::string &name, std::string_view with)
{
    return name.compare(0, with.size(), with) == 0;
}

bool
is_generator(const c10::Argument &argument)
{
    return argument.type()->str().find("Generator") != std::string::npos;
}

/* Results that are indices of the first argument. */
void
find_picks(Plan &made, const c10::FunctionSchema &schema)
{
    const std::string &name = made.name;
    const bool best = name == "aten::max" || name == "aten::min";
    const bool sorted = name == "aten::sort" || name == "aten::topk";
    if (name == "aten::argmax" || name == "aten::argmin" ||
        name == "aten::multinomial") {
        made.picks = 0;
    }
    else if (sorted || (best && schema.arguments().size() > 1 &&
                        schema.arguments()[1].name() == "dim")) {
        made.picks = 1;
    }
    made.several = sorted || name == "aten::multinomial";
    for (size_t i = 0; i < schema.arguments().size(); i++) {
        if (schema.arguments()[i].name() == "dim") {
            made.picks_dim = static_cast<int>(i);
        }
    }
}

/* An operator that autograd or a composition of others carries out is seen again as
 * these; only what has kernels of its own counts. */
Task
task_of(Plan &made, const c10::FunctionSchema &schema)
{
    const std::string &name = made.name;
    const bool torchs = starts(name, "aten::") || starts(name, "torchvision::");
    const bool kernel = made.op->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
    const bool drawn = made.op->hasTag(at::Tag::nondeterministic_seeded);

    if (name == "aten::_local_scalar_dense") {
        return Task::READ;
    }
    if (name == "aten::copy_") {
        return Task::COPY;
    }
    if (is_one_of(PASSED, name) || starts(name, "c10d::") ||
        starts(name, "_c10d_functional") || (torchs && !kernel)) {
        return Task::PASS;
    }
    if (std::any_of(schema.returns().begin(), schema.returns().end(),
                    [](const c10::Argument &result) {
                        return result.alias_info() != nullptr &&
                               !result.alias_info()->isWrite();
                    })) {
        return Task::PASS; /* a view */
    }
    /* Of its own, or one for every device, as _foreach_add_ has. */
    const bool on_host =
        made.op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    if (!torchs || is_one_of(EMPTY, name) || (drawn && made.generator < 0) ||
        !on_host) {
        return Task::FORGET;
    }
    return Task::COMPUTE;
}

std::shared_ptr<const Plan>
make_plan(const at::RecordFunction &fn)
{
    auto made = std::make_shared<Plan>();
    made->name = fn.name();
    const std::optional<c10::OperatorName> name = fn.operator_name();
    if (name.has_value()) {
        made->op = c10::Dispatcher::singleton().findSchema(*name);
    }
    if (!made->op.has_value()) {
        return made;
    }
    const c10::FunctionSchema &schema = made->op->schema();
    made->arguments = schema.arguments().size();
    made->results = schema.returns().size();
    for (size_t i = 0; i < made->arguments; i++) {
        const c10::Argument &each = schema.arguments()[i];
        made->writes.push_back(each.alias_info() != nullptr &&
                               each.alias_info()->isWrite());
        made->reads.push_back(!each.is_out() && !(made->writes.back() &&
                                                  is_one_of(OVERWRITES, made->name)));
        if (is_generator(each)) {
            made->generator = static_cast<int>(i);
        }
    }
    made->task = task_of(*made, schema);
    made->casts = made->op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA);
    made->pointwise = made->op->hasTag(at::Tag::pointwise);
    made->counts = is_one_of(COUNTED, made->name);
    made->tallies = made->name == "aten::histc" || made->name == "aten::bincount";
    find_picks(*made, schema);
    return made;
}

} // namespace

std::shared_ptr<const Plan>
plan(const at::RecordFunction &fn)
{
    /* A schema's name has one address as long as its operator is there.  Other names are
     * compared, for they come and go. */
    static thread_local std::unordered_map<const void *, std::shared_ptr<const Plan>>
        all;
    std::shared_ptr<const Plan> &found = all[fn.name()];
    if (found == nullptr || found->name != fn.name()) {
        found = make_plan(fn);
    }
    return found;
}

namespace {

thread_local bool unseen = false;

} // namespace

Unseen::Unseen() : within(unseen)
{
    unseen = true;
    if (!callbacks::inherited()) {
        const callbacks::Change change;
        guard.emplace(false);
    }
}

Unseen::~Unseen()
{
    unseen = within;
    if (guard) {
        const callbacks::Change change;
        guard.reset();
    }
}

bool
Unseen::lives()
{
    return unseen;
}

HostOnly::HostOnly()
    : /* BackendSelect: a new tensor is of the device of its options. */
      keys(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
           c10::autograd_dispatch_keyset_with_ADInplaceOrView |
               c10::autocast_dispatch_keyset | c10::default_excluded_set),
      warnings(&silence)
{
}

at::Generator
host_generator()
{
    static const at::Generator made = at::make_generator<at::CPUGeneratorImpl>();
    return made;
}

} // namespace memlab
