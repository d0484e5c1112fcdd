#include "elastic/checkpoint/part_writer.h"

#include <utility>

#include "tensor/base/threads.h"

namespace elinvar {

PartWriter::PartWriter(CheckpointStore store, Answer answer, std::function<void()> news)
    : receiver_(std::move(store)),
      answer_(std::move(answer)),
      news_(std::move(news)),
      thread_(start_thread("part-writer", [this](const std::stop_token& stop) { write(stop); })) {}

PartWriter::~PartWriter() = default;

bool PartWriter::takes(const Message& message) {
  const auto* saved = message.as<messages::Saved>();
  return message.as<messages::FilePiece>() || (saved && saved->streamed);
}

void PartWriter::add(Message message) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(message));
  changed_.notify_all();
}

std::vector<PartWriter::Finished> PartWriter::finished() {
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

void PartWriter::write(const std::stop_token& stop) {
  while (true) {
    Message message;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return !waiting_.empty(); }) || stop.stop_requested()) return;
      message = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (const auto* piece = message.as<messages::FilePiece>()) {
      answer_(message.sender, message.step, receiver_.take(message.sender, message.step, *piece));
      continue;
    }
    Finished part{message.step, receiver_.finish(message.sender, message.step, *message.as<messages::Saved>())};
    {
      const std::lock_guard lock(mutex_);
      finished_.push_back(std::move(part));
    }
    news_();
  }
}

}  // namespace elinvar
