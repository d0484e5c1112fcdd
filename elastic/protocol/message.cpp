#include "elastic/protocol/message.h"

#include <array>
#include <utility>

#include "comm/fields.h"
#include "elastic/step/scaling_state.h"
#include "tensor/base/reason.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// Runs `read`, and turns its failures into errors that state the expected form of the field.
template <class Read>
auto checked(FieldReader& reader, Read&& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    reader.refuse(reason_of(error));
  } catch (const UsageError& error) {
    reader.refuse(reason_of(error));
  } catch (const Failure& error) {
    reader.refuse(reason_of(error));
  }
}

}  // namespace

// Types that files also hold, in the same form.
template <>
struct FieldForm<Generation> {
  static Json write(const Generation& generation, std::vector<Blob>&) { return to_json(generation); }
  static Generation read(const Json& json, FieldReader& reader) {
    return checked(reader, [&] { return generation_from(json); });
  }
};
template <>
struct FieldForm<ScalingState> {
  static Json write(const ScalingState& scaling_state, std::vector<Blob>&) { return to_json(scaling_state); }
  static ScalingState read(const Json& json, FieldReader& reader) {
    return checked(reader, [&] { return scaling_state_from(json); });
  }
};
template <>
struct FieldForm<std::vector<TensorLayout>> {
  static Json write(const std::vector<TensorLayout>& layout, std::vector<Blob>&) { return to_json(layout); }
  static std::vector<TensorLayout> read(const Json& json, FieldReader& reader) {
    return checked(reader, [&] { return layout_from(json); });
  }
};
template <>
struct FieldForm<NcclId> {
  static Json write(const NcclId& id, std::vector<Blob>&) { return id.hex(); }
  static NcclId read(const Json& json, FieldReader& reader) {
    return checked(reader, [&] { return NcclId::parse(json.get<std::string>()); });
  }
};
template <>
struct FieldForm<Evidence::Stage> {
  static Json write(Evidence::Stage stage, std::vector<Blob>&) { return static_cast<int>(stage); }
  static Evidence::Stage read(const Json& json, FieldReader& reader) {
    const int stage = FieldForm<int>::read(json, reader);
    if (stage < 0 || stage > static_cast<int>(Evidence::Stage::replay)) reader.refuse("the stage of an audit", json);
    return static_cast<Evidence::Stage>(stage);
  }
};

namespace {

constexpr size_t kKinds = std::variant_size_v<Payload>;

template <size_t I>
using Alternative = std::variant_alternative_t<I, Payload>;

// Calls visit.operator()<T>() for each kind of message.
template <class Visit>
void each_kind(Visit&& visit) {
  [&]<size_t... I>(std::index_sequence<I...>) { (visit.template operator()<Alternative<I>>(), ...); }
  (std::make_index_sequence<kKinds>());
}

using Read = Payload (*)(const Packet&);

const std::map<std::string, Read, std::less<>>& readers() {
  static const std::map<std::string, Read, std::less<>> readers = [] {
    std::map<std::string, Read, std::less<>> by_name;
    each_kind([&]<class T>() {
      by_name.emplace(T::kKind.name, [](const Packet& p) -> Payload { return read_fields<T>(p.body, p.blobs); });
    });
    return by_name;
  }();
  return readers;
}

}  // namespace

const messages::Kind& kind_of(const Payload& payload) {
  return std::visit([](const auto& of) -> const messages::Kind& { return std::decay_t<decltype(of)>::kKind; }, payload);
}

Packet packet_of(Message message, uint64_t run) {
  Packet packet{.kind = kind_of(message.payload).name,
                .run = run,
                .sender = message.sender,
                .generation = message.generation,
                .step = message.step};
  packet.body = std::visit([&](const auto& of) { return write_fields(of, packet.blobs); }, message.payload);
  return packet;
}

Message message_of(const Packet& packet) {
  const auto reader = readers().find(packet.kind);
  if (reader == readers().end()) throw UsageError("an unknown kind of message");
  return {packet.sender, packet.generation, packet.step, reader->second(packet)};
}

Json description_of(const WorkerInfo& worker) {
  Json json = write_fields(worker);
  for (const char* long_one : {"gradient", "state", "images", "notices"}) json.erase(long_one);
  return json;
}

std::string message_table() {
  std::string table = "| message | from → to | fields | meaning |\n| --- | --- | --- | --- |\n";
  each_kind([&]<class T>() {
    std::string names;
    const T example{};
    if constexpr (HasFields<T>)
      each_field(example, [&]<class Field>(std::string_view name, const Field&) {
        names += names.empty() ? "" : ", ";
        names += std::string(name) + (requires(Field f) { f.has_value(); } ? "?" : "");
      });
    table += fmt::format("| `{}` | {} | {} | {} |\n", T::kKind.name, T::kKind.route, names.empty() ? "-" : names,
                         T::kKind.meaning);
  });
  return table;
}

}  // namespace elinvar
