#include "elastic/protocol/message.h"

#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/fields.h"
#include "comm/received_text.h"
#include "elastic/step/scaling_state.h"
#include "tensor/base/check.h"
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
    return checked(reader, [&] { return generation_from(received_text(json)); });
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
    return checked(reader, [&] { return layout_from(received_text(json)); });
  }
};
template <>
struct FieldForm<Shape> {
  static Json write(const Shape& shape, std::vector<Blob>&) { return std::vector<int64_t>(shape.begin(), shape.end()); }
  static Shape read(const Json& json, FieldReader& reader) {
    const auto extents = FieldForm<std::vector<int64_t>>::read(json, reader);
    return checked(reader, [&] { return whole_shape(extents); });
  }
};
template <>
struct FieldForm<DType> {
  static Json write(DType dtype, std::vector<Blob>&) { return name_of(dtype); }
  static DType read(const Json& json, FieldReader& reader) {
    return checked(reader, [&] { return dtype_from(json.get<std::string>()); });
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

template <class... Kinds>
struct KindList {
  // Calls visit.operator()<T>() for each kind of message.
  template <class Visit>
  static void each(Visit&& visit) {
    (visit.template operator()<Kinds>(), ...);
  }
};

// In the order of the table.
using AllKinds = KindList<
    messages::Ask, messages::JobDescription, messages::Hello, messages::Refused, messages::Welcome, messages::Warm,
    messages::Blind, messages::SendState, messages::Missed, messages::StopSending, messages::StatePieces,
    messages::StateSent, messages::Ready, messages::Propose, messages::Start, messages::Entered, messages::Fence,
    messages::Fenced, messages::Release, messages::NewCoordinator, messages::Suspect, messages::Drain, messages::Failed,
    messages::Contribution, messages::BucketResult, messages::TrailerPart, messages::Trailer, messages::Check,
    messages::Word, messages::Audit, messages::ShardValues, messages::BoundaryValue, messages::GradientDigests,
    messages::BucketValues, messages::BucketSums, messages::WantValues, messages::WantParameters,
    messages::ParameterValues, messages::WantRows, messages::RowValues, messages::BucketState, messages::Fetch,
    messages::GroupRoots, messages::GroupName, messages::GroupAgain, messages::GroupUsed, messages::GroupMissing,
    messages::GroupFailed, messages::Alive, messages::Heard, messages::Facts, messages::Ack, messages::Shown,
    messages::FaultInjected, messages::Saved, messages::FilePiece, messages::Taken, messages::Ctl, messages::Answer>;

struct Codec {
  Json (*write)(const Payload&, std::vector<Blob>&);
  Payload (*read)(const Json&, std::span<const Blob>);
};

const std::map<std::string, Codec, std::less<>>& codecs() {
  static const std::map<std::string, Codec, std::less<>> codecs = [] {
    std::map<std::string, Codec, std::less<>> by_name;
    AllKinds::each([&]<class T>() {
      by_name[T::kKind.name] = {
          [](const Payload& payload, std::vector<Blob>& blobs) { return write_fields(*payload.as<T>(), blobs); },
          [](const Json& body, std::span<const Blob> blobs) { return Payload(read_fields<T>(body, blobs)); }};
    });
    return by_name;
  }();
  return codecs;
}

}  // namespace

Packet packet_of(Message message, uint64_t run) {
  Packet packet{.kind = message.payload.kind().name,
                .run = run,
                .sender = message.sender,
                .generation = message.generation,
                .step = message.step};
  packet.body = codecs().at(packet.kind).write(message.payload, packet.blobs);
  return packet;
}

Message message_of(const Packet& packet) {
  const auto codec = codecs().find(packet.kind);
  if (codec == codecs().end()) throw UsageError("an unknown kind of message");
  for (const int64_t count : {packet.generation, packet.step})
    check(count >= 0 && count <= kMostReceived<int64_t>, "expected a generation and a step from 0 to {}, got {}",
          kMostReceived<int64_t>, count);
  return {packet.sender, packet.generation, packet.step, codec->second.read(packet.body, packet.blobs)};
}

Json description_of(const WorkerInfo& worker) {
  Json json = write_fields(worker);
  for (const char* long_one : {"gradient", "state", "segments", "images", "notices"}) json.erase(long_one);
  return json;
}

std::string message_table() {
  std::string table = "| message | from → to | fields | meaning |\n| --- | --- | --- | --- |\n";
  AllKinds::each([&]<class T>() {
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
