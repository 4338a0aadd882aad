/* Tells the operations of autograd's nodes from the names of their types.  See
 * node_types.h. */
#include "analysis/attribution/node_types.h"

#include <string.h>

/* Views, and operations that only work in place. */
static const char bare_types[] =
    " Alias AsStrided Conj Diagonal Expand Fill Lift LiftFresh NegView Permute "
    "ReshapeAlias Select Slice SliceInverse Split SplitWithSizes Squeeze T "
    "Transpose Unbind Unfold UnsafeSplit UnsafeSplitWithSizes UnsafeView "
    "Unsqueeze Values View ViewAsComplex ViewAsReal Zero ";

/* Operations with an in-place form, except matrix products, whose form no layer
 * uses. */
static const char in_place_types[] =
    " Abs Acos Acosh Add Addcdiv Addcmul Asin Asinh Atan Atan2 Atanh Bernoulli "
    "Cauchy Ceil Celu Clamp ClampMax ClampMin ConjPhysical Copysign Cos Cosh "
    "Cumprod Cumsum Digamma Div Elu Erf Erfc Erfinv Exp Exp2 Expm1 Exponential "
    "Floor Fmod Frac Gelu Geometric Hardsigmoid Hardswish Hardtanh Hypot I0 "
    "Igamma Igammac IndexAdd IndexCopy IndexFill IndexPut IndexPutImpl "
    "IndexReduce Ldexp LeakyRelu Lerp Lgamma Log Log10 Log1P Log2 LogNormal "
    "Logit MaskedFill MaskedScatter Mish Mul Mvlgamma NanToNum Neg Normal "
    "Polygamma Pow Put Random Reciprocal Relu Remainder Renorm Round "
    "RreluWithNoise Rsqrt Scatter ScatterAdd ScatterReduce Sgn Sigmoid Sign Silu "
    "Sin Sinc Sinh Sqrt Sub Tan Tanh Threshold Tril Triu Trunc Uniform "
    "UnsafeIndexPut Xlogy ";

/* The name of a mangled TYPE that torch generated, without "Backward" and the digits at
 * its end; empty: not generated. */
static ml_string
generated_name(ml_string type)
{
    static const char scope[] = "N5torch8autograd9generated";
    static const char tail[] = "Backward";
    const ml_string none = {"", 0};
    size_t at = sizeof(scope) - 1;
    if (type.length <= at || memcmp(type.bytes, scope, at) != 0) {
        return none;
    }
    size_t length = 0;
    for (; at < type.length && type.bytes[at] >= '0' && type.bytes[at] <= '9'; at++) {
        length = length * 10 + (size_t)(type.bytes[at] - '0');
        if (length > type.length) {
            return none;
        }
    }
    ml_string name = {type.bytes + at, (uint32_t)length};
    if (length > type.length - at) {
        return none;
    }
    while (name.length > 0 && name.bytes[name.length - 1] >= '0' &&
           name.bytes[name.length - 1] <= '9') {
        name.length--;
    }
    size_t kept = name.length - (sizeof(tail) - 1);
    if (name.length < sizeof(tail) ||
        memcmp(name.bytes + kept, tail, sizeof(tail) - 1)) {
        return none;
    }
    name.length = (uint32_t)kept;
    return name;
}

/* Whether NAMES, separated by spaces, contains NAME. */
static bool
has_name(const char *names, ml_string name)
{
    size_t end = strlen(names);
    for (size_t i = 1; i + name.length < end; i++) {
        if (names[i - 1] == ' ' && names[i + name.length] == ' ' &&
            memcmp(names + i, name.bytes, name.length) == 0) {
            return true;
        }
    }
    return false;
}

uint8_t
ml_node_kind(ml_string type)
{
    ml_string name = generated_name(type);
    if (name.length > 0) {
        return has_name(bare_types, name)       ? ML_NODE_BARE
               : has_name(in_place_types, name) ? ML_NODE_IN_PLACE
                                                : ML_NODE_ALLOCATES;
    }
    if (ml_string_holds(type, "8autograd6PyNode")) {
        return ML_NODE_PYTHON;
    }
    bool copies =
        ml_string_holds(type, "CopySlices") || ml_string_holds(type, "CopyBackwards");
    return copies ? ML_NODE_BARE : ML_NODE_IN_PLACE;
}

/* Operations that multiply matrices or vectors by cuBLAS or cuBLASLt. */
static const char product_types[] =
    " Addbmm Addmm Addmv Baddbmm Bmm Dot Linear Mm Mv Vdot ";

bool
ml_node_is_product(ml_string type)
{
    ml_string name = generated_name(type);
    return name.length > 0 && has_name(product_types, name);
}
