#pragma once
// The payload of a message: a struct from one of the message headers. as() asks for one kind, visit() for several:
//
//   visit(message.payload, [&](const messages::Drain&) { drain(); },
//                          [&](const messages::Suspect& told) { remove_worker(told.peer, told.reason); });
//
// Payloads are immutable, and copies share one struct. A std::variant of all kinds would cost compile time: every
// source that includes it would instantiate its copies and destructors for all kinds.
#include <concepts>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "elastic/protocol/message_kind.h"

namespace elinvar {

template <class T>
concept MessageStruct = requires {
  { T::kKind } -> std::convertible_to<const messages::Kind&>;
};

class Payload {
 public:
  Payload() = default;  // no message
  template <MessageStruct T>
  Payload(T message) : kind_(&T::kKind), message_(std::make_shared<const T>(std::move(message))) {}

  const messages::Kind& kind() const { return *kind_; }  // requires a message
  // Returns the message if it is of this kind, otherwise null.
  template <MessageStruct T>
  const T* as() const {
    return kind_ == &T::kKind ? static_cast<const T*>(message_.get()) : nullptr;
  }

 private:
  const messages::Kind* kind_ = nullptr;
  std::shared_ptr<const void> message_;
};

namespace detail {

// The kind of message that a handler takes, and the type that it returns.
template <class Call>
struct Handler;
template <class Class, class R, class T>
struct Handler<R (Class::*)(const T&) const> {
  using Taken = T;
  using Result = R;
};
template <class H>
using HandlerOf = Handler<decltype(&H::operator())>;

}  // namespace detail

// Calls the handler whose parameter has the payload's kind. If the handlers return nothing, returns whether one was
// called; otherwise returns the handler's value, or null if no handler takes the kind.
template <class First, class... Others>
auto visit(const Payload& payload, const First& first, const Others&... others) {
  using Result = typename detail::HandlerOf<First>::Result;
  std::conditional_t<std::is_void_v<Result>, bool, std::optional<Result>> result{};
  const auto took = [&]<class H>(const H& handler) {
    const auto* message = payload.as<typename detail::HandlerOf<H>::Taken>();
    if (!message) return false;
    if constexpr (std::is_void_v<Result>) handler(*message);
    else result = handler(*message);
    return true;
  };
  const bool any = took(first) || (took(others) || ...);
  if constexpr (std::is_void_v<Result>) result = any;
  return result;
}

}  // namespace elinvar
