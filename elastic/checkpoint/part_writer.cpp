#include "elastic/checkpoint/part_writer.h"

#include <utility>

#include "tensor/base/threads.h"

namespace elinvar {

PartWriter::PartWriter(CheckpointStore store, std::function<void(PeerId, Message)> answer, std::function<void()> news)
    : receiver_(std::move(store)),
      answer_(std::move(answer)),
      news_(std::move(news)),
      thread_(start_thread("part-writer", [this](const std::stop_token& stop) { write(stop); })) {}

PartWriter::~PartWriter() = default;

bool PartWriter::takes(const Message& message) {
  return message.kind == "piece" || (message.kind == "saved" && message.body.value("streamed", false));
}

void PartWriter::add(Message message) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(message));
  changed_.notify_all();
}

std::vector<Message> PartWriter::finished() {
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
    const PeerId worker = message.sender;
    if (message.kind == "piece") {
      answer_(worker, receiver_.take(message));
      continue;
    }
    Message saved = receiver_.finish(std::move(message));
    {
      const std::lock_guard lock(mutex_);
      finished_.push_back(std::move(saved));
    }
    news_();
  }
}

}  // namespace elinvar
