"""What a reward may use, by name, and what to say about names that models often use and may not.

Every list is an allow-list: a name that is absent is refused. The torch functions here are deterministic, create
no uninitialised memory and change none of their arguments.
"""

from __future__ import annotations

import difflib


def _words(text: str, prefix: str = "") -> frozenset[str]:
    return frozenset(prefix + word for word in text.split())


MODULES = frozenset({"torch", "math", "typing", "torch.nn", "torch.nn.functional", "torch.linalg", "torch.jit"})
FUTURE = frozenset({"annotations"})

TYPING = _words("Dict Tuple List Optional Union Any Final Sequence Mapping", "typing.")
BUILTIN_TYPES = _words("float int bool str dict list tuple")
TYPES = TYPING | {"torch.Tensor"}

BUILTINS = _words("abs min max sum len range enumerate zip float int bool round dict list tuple")
ROW_BREAKERS = _words("min max float int bool")  # builtins that cannot take a batched tensor

_TORCH = """
abs absolute acos acosh add addcdiv addcmul all allclose amax amin angle any arange arccos arccosh arcsin
arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh atleast_1d atleast_2d
baddbmm bmm broadcast_tensors bucketize cat cdist ceil chunk clamp clamp_max clamp_min clip clone
column_stack concat concatenate copysign cos cosh count_nonzero cross cummax cummin cumprod cumsum deg2rad
det diag diagonal diff div divide dot einsum eq erf erfc exp exp2 expm1 eye fix flatten flip floor
floor_divide fmax fmin fmod frac full full_like gather ge gradient greater greater_equal gt heaviside hypot
index_select inner isclose isfinite isinf isnan kthvalue lerp le less less_equal linspace log log10 log1p
log2 logaddexp logical_and logical_not logical_or logical_xor logit logsumexp lt masked_select matmul max
maximum mean median meshgrid min minimum mm movedim mul multiply mv nan_to_num nanmean nansum narrow ne neg
negative norm not_equal numel ones ones_like outer permute pow prod quantile rad2deg reciprocal relu
remainder repeat_interleave reshape roll round rsqrt scalar_tensor select sgn sigmoid sign signbit sin sinc
sinh softmax log_softmax sort split sqrt square squeeze stack std std_mean sub subtract sum swapaxes take
take_along_dim tan tanh tensor tensordot tile topk trace transpose trapezoid tril triu true_divide trunc
unbind unsqueeze vander var var_mean vdot vstack hstack where zeros zeros_like finfo is_tensor
"""
_FUNCTIONAL = """
cosine_similarity elu gelu hardsigmoid hardtanh huber_loss l1_loss leaky_relu log_softmax logsigmoid
mse_loss normalize one_hot pad pairwise_distance relu relu6 selu sigmoid silu smooth_l1_loss softmax softmin
softplus softshrink softsign tanh tanhshrink threshold celu mish hardswish
"""
_MATH = """
acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh degrees dist exp expm1 fabs floor fmod hypot
isclose isfinite isinf isnan log log10 log1p log2 pow radians sin sinh sqrt tan tanh trunc
"""
FUNCTIONS = (
    _words(_TORCH, "torch.")
    | _words(_FUNCTIONAL, "torch.nn.functional.")
    | _words("norm vector_norm cross vecdot", "torch.linalg.")
    | _words(_MATH, "math.")
    | {"torch.jit.annotate", "torch.special.expit", "torch.special.logit", "torch.special.xlog1py"}
)
SCRIPT = "torch.jit.script"  # as a decorator only

# These take `inplace` or `out` as a positional argument: how many arguments may be given by position.
POSITIONAL_LIMIT = {
    prefix + name: limit
    for prefix, limit, group in (
        ("torch.nn.functional.", 1, "relu relu6 selu silu mish hardsigmoid hardswish"),
        ("torch.nn.functional.", 2, "elu celu leaky_relu"),
        ("torch.nn.functional.", 3, "hardtanh threshold"),
        ("torch.nn.functional.", 4, "normalize"),
        ("torch.", 3, "tensordot"),
        ("torch.", 4, "norm"),
    )
    for name in group.split()
}
REFUSED_KEYWORDS = _words("out inplace requires_grad pin_memory generator")

VALUES = (
    _words("pi e inf nan newaxis", "torch.")
    | _words(
        "float16 bfloat16 float32 float64 half float double int8 int16 int32 int64 uint8 int long bool",
        "torch.",
    )
    | _words("pi e tau inf nan", "math.")
)
PROPERTIES = _words("shape dtype device ndim T mT values indices eps tiny")

METHODS = _words("""
abs absolute acos acosh add addcdiv addcmul all allclose amax amin any argmax argmin argsort asin asinh atan
atan2 atanh bmm bool byte ceil chunk clamp clamp_max clamp_min clip clone contiguous copysign cos cosh
count_nonzero cross cummax cummin cumprod cumsum deg2rad detach diag diagonal diff dim div divide dot double
eq erf erfc exp exp2 expand expand_as expm1 fix flatten flip float floor floor_divide fmod frac gather ge
greater greater_equal gt half heaviside hypot index_select inner int is_floating_point isclose isfinite
isinf isnan kthvalue le lerp less less_equal log log10 log1p log2 logaddexp logical_and logical_not
logical_or logical_xor logit logsumexp long lt masked_fill masked_select matmul max maximum mean median min
minimum mm movedim mul multiply mv nan_to_num nanmean nansum narrow ne neg negative new_full new_ones
new_tensor new_zeros nelement norm not_equal numel outer permute pow prod quantile rad2deg reciprocal relu
remainder repeat repeat_interleave reshape roll round rsqrt scatter select sgn sigmoid sign sin sinc sinh
size softmax log_softmax sort split sqrt square squeeze std sub subtract sum swapaxes t take tan tanh tile
to topk trace transpose tril triu true_divide trunc type type_as unbind unflatten unsqueeze var vdot view
view_as where items keys values get update append extend
""")

_RANDOM = _words(
    """
rand randn randint randperm rand_like randn_like randint_like bernoulli normal multinomial poisson dropout
manual_seed seed random uniform gumbel_softmax
"""
)
HINTS = {
    "item": "keep everything batched: one value per row, no Python numbers; use torch.where for conditions",
    "tolist": "keep everything batched in tensors",
    "numpy": "stay with torch; every NumPy function used here has a torch equivalent",
    "cpu": "leave the tensor on its device",
    "cuda": "leave the tensor on its device; create new ones with torch.zeros_like(x) or device=x.device",
    "data": "use the tensor itself",
    "grad": "no gradients are computed; use the tensor itself",
    "backward": "no gradients are computed; remove the call",
    "requires_grad": "no gradients are computed; remove it",
    "format": "use a plain string for a component's name",
    "apply": "use torch functions on whole tensors",
    "print": "remove it; what you want to see belongs into the components",
    "eval": "write the expression itself",
    "exec": "write the code itself",
    "getattr": "write out what you need; only tensor arithmetic is needed",
    "isinstance": "every input is a Tensor; remove the test",
    "map": "use torch functions on whole tensors",
    "sorted": "use torch.sort",
    "pow": "use `**` or torch.pow",
    "any": "use torch.any(x, dim=-1)",
    "all": "use torch.all(x, dim=-1)",
    "str": "use a plain string",
    "set": "use a tuple or a list",
    "np": "use torch instead of NumPy",
    "torch.empty": "use torch.zeros",
    "torch.empty_like": "use torch.zeros_like",
    "torch.device": "use an input's device: device=x.device",
    "torch.no_grad": "no gradients are computed; remove it",
    "torch.from_numpy": "use torch.tensor",
    "torch.cuda.is_available": "use an input's device: device=x.device",
    "torch.Tensor": "use torch.tensor([...])",
    "torch.FloatTensor": "use torch.tensor([...])",
}

STATEMENTS = {
    "While": "`while` is not allowed: keep everything batched; use torch.where, or a `for` over range(...)",
    "Try": "`try` is not allowed: guard the computation itself, e.g. with torch.clamp or torch.nan_to_num",
    "TryStar": "`try` is not allowed: guard the computation itself, e.g. with torch.clamp",
    "With": "`with` is not allowed: no gradients are computed; write its body alone",
    "AsyncWith": "`async` is not allowed; write plain functions",
    "AsyncFor": "`async` is not allowed; write plain functions",
    "AsyncFunctionDef": "`async` is not allowed; write plain functions",
    "ClassDef": "classes are not allowed; write plain functions",
    "FunctionDef": "a function inside a function is not allowed; move it to the top level of the file",
    "Global": "`global` is not allowed: a reward has no memory; use prev_<field> for the step before",
    "Nonlocal": "`nonlocal` is not allowed: a reward has no memory; use prev_<field> for the step before",
    "Delete": "`del` is not allowed; remove it",
    "Import": "imports must stand at the top of the file",
    "ImportFrom": "imports must stand at the top of the file",
    "Assert": "`assert` is not allowed; remove it",
    "Raise": "`raise` is not allowed; return a value for every state",
    "Match": "`match` is not allowed; use if and else",
    "TypeAlias": "`type` is not allowed; remove it",
    "If": "`if` is not allowed at module level; remove it (the file holds imports and functions only)",
}
# Syntax that is allowed whatever it holds; what it holds is checked.
PLAIN = _words(
    """
Pass Break Continue Expr If IfExp BoolOp BinOp UnaryOp Compare Subscript Slice Tuple List ListComp DictComp
GeneratorExp
"""
)
EXPRESSIONS = {
    "Lambda": "`lambda` is not allowed; write the expression itself or a function at the top level",
    "Yield": "`yield` is not allowed; return (reward, components)",
    "YieldFrom": "`yield` is not allowed; return (reward, components)",
    "Await": "`await` is not allowed; write plain functions",
    "Starred": "`*` unpacking is not allowed; write the values out",
    "Set": "sets are not allowed; use a tuple or a list",
    "SetComp": "sets are not allowed; use a tuple or a list",
}
BATCH_LOOP = (
    "a loop over the batch is not allowed: the inputs hold one row per environment; compute all rows at once "
    "with torch functions, and use torch.where for conditions"
)
ROW_TEST = (
    "a tensor holds one value per row, so `if`, `and`, `or`, `not`, min(), max(), float(), int() and bool() "
    "cannot take it; use torch.where, `&`, `|`, `~`, torch.minimum, torch.maximum, .float()"
)
TWO_VALUES = "return two things, the reward (N,) and a dict of its components: `return reward, components`"
NOT_A_TYPE = "an annotation is not a type; write Tensor, float or leave it out"

# Results that may share memory with what they are called on.
VIEWS = _words(
    """
view view_as reshape expand expand_as squeeze unsqueeze transpose permute detach t flatten unflatten contiguous
float to type narrow select diagonal swapaxes movedim unbind split chunk
"""
)
MEASURES = _words("dim size numel nelement is_floating_point allclose item")
REDUCTIONS = _words(
    "sum nansum mean nanmean max min all any norm prod std var median argmax argmin logsumexp amax amin count_nonzero"
)
# Functions and keyword arguments whose literals are shapes, orders and dimensions: no constants to tune.
STRUCTURAL_CALLS = _words(
    """
pow norm vector_norm range view reshape expand repeat tile permute transpose squeeze unsqueeze size flatten narrow
select roll flip movedim swapaxes zeros ones eye quantile topk kthvalue round
"""
)
STRUCTURAL_KEYWORDS = _words("dim dims keepdim p ord dtype size axis correction decimals eps q k")
# What a missing import is answered with.
IMPORTS = {
    "torch": "import torch",
    "math": "import math",
    "F": "import torch.nn.functional as F",
    "Tensor": "from torch import Tensor",
}


def not_allowed(path: str, after: str = "", shown: str | None = None) -> str:
    """`path` is not allowed, and what to do instead. Methods begin with a dot; `shown` is how the source has it."""
    last = path.rsplit(".", 1)[-1]
    hint = HINTS.get(path) or HINTS.get(last)
    if hint is None and last in _RANDOM:
        hint = "a reward must be deterministic: the same state, the same reward"
    elif hint is None and path.startswith("."):
        if last.endswith("_") and not last.endswith("__"):
            hint = f"it changes a tensor in place; use `.{last.rstrip('_')}(...)` and assign its result"
        else:
            near = difflib.get_close_matches(last, METHODS, n=2, cutoff=0.8)
            hint = f"did you mean .{' or .'.join(near)}?" if near else "use only tensor arithmetic"
    elif hint is None and path.startswith("torch."):
        near = difflib.get_close_matches(path, FUNCTIONS | VALUES, n=2, cutoff=0.85)
        hint = f"did you mean {' or '.join(near)}?" if near else "use only deterministic tensor arithmetic"
    return f"`{shown or path}{after}` is not allowed: {hint or 'use only torch, math and plain arithmetic'}"
