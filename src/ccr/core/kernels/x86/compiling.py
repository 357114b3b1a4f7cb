"""The decorators of `ccr.core.kernels.compiling`, with a folder of compiled kernels for each variant."""

from ccr.core.kernels.compiling import decorator
from ccr.core.kernels.x86.variants import VARIANT

compiled = decorator(folder=VARIANT.name)
part = decorator(inline="always", folder=VARIANT.name)
fused = decorator("contract", folder=VARIANT.name)
