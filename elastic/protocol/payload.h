#pragma once
// The payload of a message: one struct of the headers of messages, whichever kind it is. A reader asks for a kind with
// as(), or for several with visit():
//
//   visit(message.payload, [&](const messages::Drain&) { drain(); },
//                          [&](const messages::Suspect& told) { remove_worker(told.peer, told.reason); });
//
// Payloads are immutable, and copies share one struct. It is not a std::variant of all kinds, whose copies and
// destructors every source that includes it would compile for every kind.
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

// The kind of message that a handler takes, and what it returns.
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

// Calls the handler of the payload's kind. Returns whether there is one, or, if the handlers return values, the value,
// without one if no handler takes the kind.
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
