#include "tensor/precision.h"

#include "tensor/op_check.h"

namespace elinvar {

Tensor factor(const char* op, const Tensor& t, Precision precision) {
  if (precision == Precision::portable) {
    check_float(op, t);
    return t;
  }
  invariant(precision != Precision::exact, "factors of exact products are Quantized");
  check(t.device().kind != DeviceKind::cpu,
        "[{}] {} products need a GPU; move the operands there, or ask for portable ones", op, name_of(precision));
  const bool ready = precision == Precision::bf16 && t.dtype() == DType::bf16;
  check(t.dtype() == DType::f32 || ready, "[{}] factors of {} products are float32{}, got {}; convert with to()", op,
        name_of(precision), precision == Precision::bf16 ? " or bfloat16" : "", name_of(t.dtype()));
  return precision == Precision::bf16 ? t.to(DType::bf16) : t;
}

FastProducts fast_products(Device device) {
  if (device.kind == DeviceKind::emulated) return {.by = "stand-ins"};
  if (device.kind == DeviceKind::cuda) return fast_products_of_cuda(device.index);
  return {.missing = "a CPU has no tensor cores"};
}

void refuse_fast_products() { throw UsageError("[precision] fast products need a GPU; a CPU has no tensor cores"); }

}  // namespace elinvar
