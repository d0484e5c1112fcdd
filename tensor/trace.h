#pragma once
// Ops as objects, so that the computation of a step can be recorded op by op, and each op repeated alone (tools/repro).
//
//   Tensor dropout_of(Tensor x, double p, const Rng& rng) { ... }
//   const Op kDropout("dropout(x, p, rng) -> y", dropout_of);
//   Tensor dropout(Tensor x, double p, const Rng& rng) { return kDropout(std::move(x), p, rng); }
//
// Calling the object calls the function. If the calling thread has a Recorder, it gets the arguments before the call,
// and the results and the work after it; what the function calls in turn is part of the op and not recorded. Without a
// Recorder this costs the test of a pointer. Once constructed, an op can be found by name (find_op) and called with
// values from a file.
//
// Types of parameters and results, and what is recorded of each:
//   numbers, enumerations, Shape     the value, as text that reads back as the same bits
//   Tensor, const Tensor&            the tensor, which may be undefined
//   Tensor&, std::vector<Tensor>&    changed in place: the tensors before the call, and again after it
//   Written                          overwritten as a whole: before the call, only shape and layout
//   std::vector, std::span           the count, then each element
//   const T*                         whether it is null, then what it points to
//   structs                          field by field (tensor/fields.h), without fields of type In and Out, which the op
//                                    sets itself
// The signature names the parameters, and the result unless it is a struct: "rng.seed" is a field of a parameter,
// "mean" a field of a result.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct Written {
  Tensor& tensor;
};

struct TraceValue {
  enum class Kind { number, tensor, place };  // place: a Written before the call
  std::string name;                           // "x", "rng.seed", "gradients.3"
  Kind kind = Kind::number;
  std::string number = {};
  Tensor tensor = {};
};
using TraceValues = std::vector<TraceValue>;

class AnyOp {
 public:
  AnyOp(const AnyOp&) = delete;
  AnyOp& operator=(const AnyOp&) = delete;

  const std::string& name() const { return name_; }
  // Takes arguments as a recorder gets them and returns results as a recorder gets them. Places need shape, type and
  // device. Throws UsageError if the values are not those of this op.
  virtual TraceValues call(TraceValues arguments) const = 0;

 protected:
  AnyOp(std::string_view signature, bool named_result);
  ~AnyOp() = default;

  const std::string& parameter(size_t i) const;  // its name; aborts if the signature has too few

  std::string name_, result_;
  std::vector<std::string> parameters_;
};

// The work of a call. Bytes are those of all tensors that it was given, made or changed. A multiply-add counts as two
// floating-point operations, and only products are counted.
struct OpWork {
  double flop = 0;
  double bytes = 0;
};

const AnyOp* find_op(std::string_view name);  // null if this program has no such op
std::vector<std::string> op_names();

class Recorder {
 public:
  virtual ~Recorder() = default;
  // Must not keep handles: an op writes its result over a tensor that it has the only handle on.
  virtual void begins(const AnyOp& op, const TraceValues& arguments) = 0;
  virtual void ends(const TraceValues& results, const OpWork& work) = 0;
};

namespace trace {

// Convert numbers to text and back; a Shape is "(2, 3)".
std::string text_of(int64_t x);
std::string text_of(uint64_t x);
std::string text_of(float x);
std::string text_of(double x);
std::string text_of(const Shape& shape);
void parse(const std::string& text, int64_t& x);
void parse(const std::string& text, uint64_t& x);
void parse(const std::string& text, float& x);
void parse(const std::string& text, double& x);
void parse(const std::string& text, Shape& shape);

inline constinit thread_local Recorder* recorder = nullptr;
inline constinit thread_local const char* part = "";

// Suspends recording in this thread while in scope.
class Pause {
 public:
  Pause() : recorder_(std::exchange(recorder, nullptr)) {}
  ~Pause() { recorder = recorder_; }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
  Recorder& recorder_told() const { return *recorder_; }

 private:
  Recorder* recorder_;
};

}  // namespace trace

// Records the calls of this thread in `recorder` while in scope.
class RecordScope {
 public:
  explicit RecordScope(Recorder& recorder) : before_(std::exchange(trace::recorder, &recorder)) {}
  ~RecordScope() { trace::recorder = before_; }
  RecordScope(const RecordScope&) = delete;
  RecordScope& operator=(const RecordScope&) = delete;

 private:
  Recorder* before_;
};

// Names, for recorders, the part of a step to which this thread's ops belong while in scope: "backward".
class TracePart {
 public:
  explicit TracePart(const char* part) : before_(std::exchange(trace::part, part)) {}
  ~TracePart() { trace::part = before_; }
  TracePart(const TracePart&) = delete;
  TracePart& operator=(const TracePart&) = delete;

 private:
  const char* before_;
};
inline const char* trace_part() { return trace::part; }

namespace trace {

template <class T>
inline constexpr bool kNumber = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Shape>;
template <class T>
inline constexpr bool kAddress = std::is_same_v<T, In> || std::is_same_v<T, Out>;
template <class T>
inline constexpr bool kList = false;
template <class T>
inline constexpr bool kList<std::vector<T>> = true;
template <class T>
inline constexpr bool kList<std::span<T>> = true;
template <class A>
inline constexpr bool kChanged =
    std::is_same_v<A, Tensor&> || std::is_same_v<A, std::vector<Tensor>&> || std::is_same_v<A, Written>;

// Converts a number to the type in which it is written.
template <class T>
auto widened(const T& x) {
  if constexpr (std::is_same_v<T, Shape> || std::is_floating_point_v<T>) return x;
  else if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool> || std::is_signed_v<T>)
    return static_cast<int64_t>(x);
  else return static_cast<uint64_t>(x);
}

template <class T>
void write(const T& value, const std::string& name, TraceValues& to) {
  if constexpr (std::is_same_v<T, Tensor>) {
    to.push_back({.name = name, .kind = TraceValue::Kind::tensor, .tensor = value});
  } else if constexpr (std::is_same_v<T, Written>) {
    to.push_back({.name = name, .kind = TraceValue::Kind::place, .tensor = value.tensor});
  } else if constexpr (kNumber<T>) {
    to.push_back({.name = name, .number = text_of(widened(value))});
  } else if constexpr (kList<T>) {
    to.push_back({.name = name + ".size", .number = text_of(uint64_t{value.size()})});
    size_t i = 0;
    for (const auto& element : value) write(element, name + "." + std::to_string(i++), to);
  } else if constexpr (std::is_pointer_v<T>) {
    to.push_back({.name = name + ".given", .number = text_of(int64_t{value != nullptr})});
    if (value) write(*value, name, to);
  } else {
    each_field(value, [&](std::string_view field_name, const auto& field) {
      if constexpr (!kAddress<std::remove_cvref_t<decltype(field)>>)
        write(field, name.empty() ? std::string(field_name) : name + "." + std::string(field_name), to);
    });
  }
}

class Reader {
 public:
  explicit Reader(TraceValues& values) : values_(values) {}
  TraceValue& next(TraceValue::Kind kind);  // throws UsageError if it is missing or of another kind
  void end() const;                         // throws UsageError if there are more

 private:
  TraceValues& values_;
  size_t at_ = 0;
};

// The last enumerator. Other enumerations declare theirs next to themselves.
constexpr DType last_of(DType) { return DType::u8; }

double bytes_of(const TraceValues& values);

// Throw UsageError for a number that is out of a narrower type's range.
void check_range(int64_t x, int64_t first, int64_t last);
void check_range(uint64_t x, uint64_t first, uint64_t last);

template <class T>
void read(Reader& from, T& value) {
  if constexpr (std::is_same_v<T, Tensor>) {
    value = std::move(from.next(TraceValue::Kind::tensor).tensor);
  } else if constexpr (kNumber<T>) {
    auto wide = widened(value);
    parse(from.next(TraceValue::Kind::number).number, wide);
    value = static_cast<T>(wide);
    if constexpr (std::is_enum_v<T>) check_range(wide, 0, static_cast<int64_t>(last_of(T{})));
    else if constexpr (std::is_integral_v<T>)
      check_range(wide, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  } else if constexpr (kList<T>) {
    uint64_t size = 0;
    read(from, size);
    for (value.clear(); value.size() < size;) read(from, value.emplace_back());
  } else if constexpr (!kAddress<T>) {
    each_field(value, [&](std::string_view, auto& field) { read(from, field); });
  }
}

// An argument from a file: how it is stored, and how it is passed on.
template <class A>
struct Held {
  std::remove_cvref_t<A> value{};
  explicit Held(Reader& from) { read(from, value); }
  A pass() { return static_cast<A>(value); }
};
template <class T>
requires(!std::is_reference_v<T> && std::is_class_v<T> && !kList<T>) struct Held<T> {
  T value{};
  explicit Held(Reader& from) { read(from, value); }
  T pass() { return std::move(value); }
};
template <>
struct Held<Written> {
  Tensor value;
  explicit Held(Reader& from) : value(std::move(from.next(TraceValue::Kind::place).tensor)) {}
  Written pass() { return {value}; }
};
template <class T>
struct Held<std::span<const T>> {
  std::vector<T> value;
  explicit Held(Reader& from) { read(from, value); }
  std::span<const T> pass() { return value; }
};
template <class T>
struct Held<const T*> {
  std::optional<T> value;
  explicit Held(Reader& from) {
    bool given = false;
    read(from, given);
    if (given) read(from, value.emplace());
  }
  const T* pass() { return value ? &*value : nullptr; }
};
}  // namespace trace

template <class Signature>
class Op;

template <class R, class... A>
class Op<R(A...)> final : public AnyOp {
 public:
  using Body = R (*)(A...);
  // Returns the floating-point operations of a product. Called after the body, which has checked the arguments, and
  // which may have moved from those that it takes by value.
  using Flop = double (*)(A...);
  Op(std::string_view signature, Body body, Flop flop = nullptr)
      : AnyOp(signature, !std::is_void_v<R> && !HasFields<R>), body_(body), flop_(flop) {}

  R operator()(A... arguments) const {
    if (trace::recorder == nullptr) [[likely]]
      return body_(std::forward<A>(arguments)...);
    return recorded(std::forward<A>(arguments)...);
  }

  TraceValues call(TraceValues values) const override {
    trace::Reader from(values);
    std::tuple<trace::Held<A>...> held{trace::Held<A>(from)...};
    from.end();
    return std::apply([&](auto&... each) { return results_of(each.pass()...); }, held);
  }

  // Replaces the body, for tests of fault detection. Call it before any other thread calls the op.
  void replace(Body body) const { body_ = body; }

 private:
  R recorded(A... arguments) const {
    const trace::Pause pause;
    OpWork work;
    {
      TraceValues values;
      size_t i = 0;
      (trace::write(arguments, parameter(i++), values), ...);
      work.bytes = trace::bytes_of(values);
      pause.recorder_told().begins(*this, values);
    }
    TraceValues results;
    const auto end = [&] {
      if (flop_) work.flop = flop_(arguments...);
      work.bytes += trace::bytes_of(results);
      pause.recorder_told().ends(results, work);
    };
    if constexpr (std::is_void_v<R>) {
      body_(std::forward<A>(arguments)...);
      write_changed<A...>(results, arguments...);
      end();
    } else {
      R result = body_(std::forward<A>(arguments)...);
      write_changed<A...>(results, arguments...);
      trace::write(result, result_, results);
      end();
      return result;
    }
  }

  TraceValues results_of(A... arguments) const {
    TraceValues results;
    if constexpr (std::is_void_v<R>) {
      body_(std::forward<A>(arguments)...);
      write_changed<A...>(results, arguments...);
    } else {
      const R result = body_(std::forward<A>(arguments)...);
      write_changed<A...>(results, arguments...);
      trace::write(result, result_, results);
    }
    return results;
  }

  template <class... Arguments, class... T>
  void write_changed(TraceValues& to, const T&... values) const {
    size_t i = 0;
    const auto one = [&]<class Argument>(const auto& value) {
      const std::string& name = parameter(i++);
      if constexpr (std::is_same_v<Argument, Written>) trace::write(value.tensor, name, to);
      else if constexpr (trace::kChanged<Argument>) trace::write(value, name, to);
    };
    (one.template operator()<Arguments>(values), ...);
  }

  mutable Body body_;
  Flop flop_;
};

template <class R, class... A>
Op(std::string_view, R (*)(A...)) -> Op<R(A...)>;
template <class R, class... A>
Op(std::string_view, R (*)(A...), double (*)(A...)) -> Op<R(A...)>;

}  // namespace elinvar
