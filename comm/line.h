#pragma once
// A second descriptor of a connection that something else owns, by which it can be cut.
namespace elinvar {

class Line {
 public:
  Line() = default;
  explicit Line(int descriptor);  // shares the connection; none if the descriptor is closed already
  ~Line();
  Line(Line&& other) noexcept;
  Line& operator=(Line&& other) noexcept;

  explicit operator bool() const { return descriptor_ >= 0; }
  void cut() const;  // both ends see the end of the connection; what has not been sent is lost

 private:
  int descriptor_ = -1;
};

}  // namespace elinvar
