#include "tools/training/event_file.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <utility>

namespace elinvar {
namespace {

// Fields of Event and SessionLog.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kStatus = 1, kStart = 1;

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}();

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// Masks a checksum, because a checksum of data that contain unmasked checksums is weak.
std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian((crc >> 15 | crc << 17) + 0xA282EAD8u, 4);
}

ProtoMessage event() {
  ProtoMessage event;
  event.real(kWallTime, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  return event;
}

// Creates the file with this number, or with the next free one: terms are counted from 1 again if their records were
// lost.
File new_file(const std::filesystem::path& folder, int64_t number) {
  make_directories(folder);
  std::filesystem::path path;
  do path = folder / fmt::format("events.out.tfevents.{:010}", number++);
  while (std::filesystem::exists(path));
  return File::create(path);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  const std::string length = little_endian(bytes.size(), 8);
  std::string record = length + masked_crc(length);
  record += bytes;
  return record + masked_crc(bytes);
}

EventFile::EventFile(const std::filesystem::path& run_directory, int64_t term, int64_t step)
    : file_(new_file(run_directory / "tensorboard", term)) {
  ProtoMessage version = event(), start = event(), log;
  version.text(kFileVersion, "brain.Event:2");
  log.integer(kStatus, kStart);
  start.integer(kStep, step + 1);
  start.message(kSessionLog, log);
  file_.write(tf_record(version.bytes()) + tf_record(start.bytes()));
}

void EventFile::add(int64_t step, std::string_view summary) {
  ProtoMessage message = event();
  message.integer(kStep, step);
  message.text(kSummary, summary);
  added_ += tf_record(message.bytes());
}

void EventFile::write() {
  if (!added_.empty()) file_.write(std::exchange(added_, {}));
}

}  // namespace elinvar
