/* Owns the host's tensors that stand for those of the device, and what fills up values
 * that are not known. */
#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Half.h>

#include "values.h"

namespace memlab {

namespace {

constexpr int64_t MOST_BYTES = 1 << 20;
constexpr int64_t MOST_FLOAT_BYTES = 1 << 16;

template <class T>
void
store(unsigned char *filler)
{
    const T half(0.5f);
    std::memcpy(filler, &half, sizeof half);
}

bool
is_real(c10::ScalarType type)
{
    return c10::isFloatingType(type) || c10::isComplexType(type);
}

/* Bytes from a tensor's first value to the end of its last one in memory. */
int64_t
spanned(const at::Tensor &tensor)
{
    if (tensor.numel() == 0) {
        return 0;
    }
    int64_t values = 1;
    for (int64_t i = 0; i < tensor.dim(); i++) {
        values += (tensor.size(i) - 1) * tensor.stride(i);
    }
    return values * static_cast<int64_t>(tensor.element_size());
}

/* Repeats the filler's WIDTH bytes over all BYTES at TO. */
void
fill(unsigned char *to, size_t bytes, const unsigned char *filler, size_t width)
{
    size_t there = std::min(width, bytes);
    std::memcpy(to, filler, there);
    while (there < bytes) {
        const size_t more = std::min(there, bytes - there);
        std::memcpy(to + there, to, more);
        there += more;
    }
}

uintptr_t
address_of(const at::Tensor &tensor)
{
    return reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
}

} // namespace

size_t
make_up(c10::ScalarType type, unsigned char filler[16])
{
    std::memset(filler, 0, 16);
    switch (type) {
    case c10::ScalarType::Double:
    case c10::ScalarType::ComplexDouble:
        store<double>(filler);
        break;
    case c10::ScalarType::Float:
    case c10::ScalarType::ComplexFloat:
        store<float>(filler);
        break;
    case c10::ScalarType::Half:
    case c10::ScalarType::ComplexHalf:
        store<c10::Half>(filler);
        break;
    case c10::ScalarType::BFloat16:
        store<c10::BFloat16>(filler);
        break;
    case c10::ScalarType::Float8_e4m3fn:
        store<c10::Float8_e4m3fn>(filler);
        break;
    case c10::ScalarType::Float8_e4m3fnuz:
        store<c10::Float8_e4m3fnuz>(filler);
        break;
    case c10::ScalarType::Float8_e5m2:
        store<c10::Float8_e5m2>(filler);
        break;
    case c10::ScalarType::Float8_e5m2fnuz:
        store<c10::Float8_e5m2fnuz>(filler);
        break;
    default:
        break;
    }
    return c10::elementSize(type);
}

bool
is_plain(const at::Tensor &tensor)
{
    constexpr c10::DispatchKeySet wrappers{c10::DispatchKey::Python,
                                           c10::DispatchKey::FuncTorchBatched,
                                           c10::DispatchKey::FuncTorchGradWrapper,
                                           c10::DispatchKey::Functionalize,
                                           c10::DispatchKey::Conjugate,
                                           c10::DispatchKey::Negative,
                                           c10::DispatchKey::ZeroTensor};
    return tensor.layout() == c10::Layout::Strided &&
           !tensor.key_set().has_any(wrappers) &&
           (tensor.is_cuda() || tensor.is_cpu()) && !tensor.is_quantized() &&
           !tensor.is_nested() && tensor.has_storage() &&
           !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

bool
is_small(const at::Tensor &tensor)
{
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    return bytes <= (is_real(tensor.scalar_type()) ? MOST_FLOAT_BYTES : MOST_BYTES);
}

void
forget(const at::Tensor &tensor)
{
    contents()->forget(address_of(tensor), static_cast<size_t>(spanned(tensor)));
}

Twin::Twin(const at::Tensor &of)
    : kind(KNOWN), start(address_of(of)), sizes(of.sizes().vec()),
      strides(of.strides().vec())
{
    unsigned char filler[16];
    const size_t width = make_up(of.scalar_type(), filler);
    const int64_t bytes = spanned(of);
    const at::TensorOptions options = at::TensorOptions().dtype(of.dtype());

    if (bytes > MOST_BYTES || !is_small(of)) {
        /* Too large to be kept, or a part of such a tensor. */
        kind = UNKNOWN;
        if (!is_small(of)) {
            sizes.assign(sizes.size(), 1);
        }
        value = at::empty(sizes, options);
        fill(static_cast<unsigned char *>(value.mutable_data_ptr()), value.nbytes(),
             filler, width);
        return;
    }
    content = at::empty({bytes}, at::kByte);
    kinds.resize(static_cast<size_t>(bytes));
    auto *to = content.mutable_data_ptr<unsigned char>();
    fill(to, kinds.size(), filler, width);
    contents()->get(start, to, kinds.data(), kinds.size());
    /* Of one storage with its bytes, which an operator may enlarge. */
    value = at::empty({0}, options).set_(content.storage(), 0, sizes, strides);
    if (bytes > 0) {
        kind = lowest();
    }
}

/* Of all values, not of what lies between them. */
unsigned char
Twin::lowest() const
{
    /* Most are all the same, which memcmp() sees soonest. */
    if (std::memcmp(kinds.data(), kinds.data() + 1, kinds.size() - 1) == 0) {
        return kinds[0];
    }
    std::vector<int64_t> steps(strides);
    for (int64_t &step : steps) {
        step *= static_cast<int64_t>(value.element_size());
    }
    return at::from_blob(const_cast<unsigned char *>(kinds.data()), sizes, steps,
                         at::kByte)
        .min()
        .item<uint8_t>();
}

void
Twin::give_back(unsigned char as)
{
    if (kinds.empty() || value.sizes() != sizes || value.strides() != strides) {
        return; /* of an argument that was given another form */
    }
    if (value.is_non_overlapping_and_dense()) {
        std::memset(kinds.data(), as, kinds.size());
    }
    else {
        const auto width = static_cast<int64_t>(value.element_size());
        std::vector<int64_t> steps(strides), bytes(sizes);
        for (int64_t &step : steps) {
            step *= width;
        }
        steps.push_back(1);
        bytes.push_back(width);
        at::from_blob(kinds.data(), bytes, steps, at::kByte).fill_(as);
    }
    contents()->put(start, content.const_data_ptr<unsigned char>(), kinds.data(),
                    kinds.size());
}

} // namespace memlab
