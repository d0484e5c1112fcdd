#include "tools/train/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace elinvar {
namespace {

constexpr int kLeastColumns = 24, kLeastRows = 3;
constexpr int kColours[] = {36, 33, 35, 32, 34, 31};  // terminal colours: cyan, yellow, magenta, green, blue, red
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Range {
  double least = kInfinity, most = -kInfinity;
  void include(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool empty() const { return least > most; }
  // Centres a single value.
  void widen() {
    if (most > least) return;
    const double half = least == 0 ? 1 : std::abs(least) / 2;
    least -= half;
    most += half;
  }
  double share(double value) const { return (value - least) / (most - least); }
  double at(double share) const { return least + share * (most - least); }
};

// A grid of cells; a cell is one letter, or two by four braille dots.
class Canvas {
 public:
  Canvas(int columns, int rows, bool braille)
      : columns_(columns), rows_(rows), wide_(braille ? 2 : 1), high_(braille ? 4 : 1) {
    cells_.resize(static_cast<size_t>(columns * rows));
  }
  int dots_wide() const { return columns_ * wide_; }
  int dots_high() const { return rows_ * high_; }

  void dot(int x, int y, int line) {
    // Bits of the braille dots. Unicode numbers them down the left column, then the right one, and the fourth row last.
    constexpr int kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    Cell& cell = cells_[static_cast<size_t>(y / high_ * columns_ + x / wide_)];
    cell.line = line;
    cell.dots |= high_ == 1 ? 1 : kBits[y % high_][x % wide_];
  }
  void stroke(int x0, int y0, int x1, int y1, int line) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i)
      dot(static_cast<int>(std::lround(x0 + static_cast<double>(x1 - x0) * i / steps)),
          static_cast<int>(std::lround(y0 + static_cast<double>(y1 - y0) * i / steps)), line);
  }

  std::string row(int r, const std::string& letters, bool colours) const {
    std::string text;
    int colour = 0;
    for (int c = 0; c < columns_; ++c) {
      const Cell& cell = cells_[static_cast<size_t>(r * columns_ + c)];
      const int wanted = cell.dots != 0 && colours ? kColours[static_cast<size_t>(cell.line) % std::size(kColours)] : 0;
      if (wanted != colour) text += fmt::format("\033[{}m", wanted);
      colour = wanted;
      if (cell.dots == 0) text += ' ';
      else if (high_ == 1) text += letters[static_cast<size_t>(cell.line) % letters.size()];
      else text += {'\xE2', static_cast<char>(0xA0 | cell.dots >> 6), static_cast<char>(0x80 | (cell.dots & 0x3F))};
    }
    if (colour != 0) text += "\033[0m";
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  struct Cell {
    int dots = 0, line = 0;
  };
  int columns_, rows_, wide_, high_;
  std::vector<Cell> cells_;
};

std::string label(double value) { return fmt::format("{:.4g}", value); }

// Returns the points of a line that can be drawn, in the chart's coordinates.
std::vector<std::pair<double, double>> drawable(const ChartLine& line, bool logarithmic) {
  std::vector<std::pair<double, double>> points;
  for (auto [x, y] : line.points) {
    if (logarithmic) y = y > 0 ? std::log10(y) : std::numeric_limits<double>::quiet_NaN();
    if (std::isfinite(x) && std::isfinite(y)) points.emplace_back(x, y);
  }
  return points;
}

void draw(Canvas& canvas, const std::vector<std::pair<double, double>>& points, const Range& xs, const Range& ys,
          int line) {
  int before_x = -1, before_y = 0;
  for (size_t i = 0; i < points.size();) {
    const auto column = [&](size_t p) {
      return static_cast<int>(std::lround(xs.share(points[p].first) * (canvas.dots_wide() - 1)));
    };
    const int x = column(i);
    double sum = 0, count = 0;
    for (; i < points.size() && column(i) == x; ++i, ++count) sum += points[i].second;
    const int y = static_cast<int>(std::lround((1 - ys.share(sum / count)) * (canvas.dots_high() - 1)));
    if (before_x < 0) canvas.dot(x, y, line);
    else canvas.stroke(before_x, before_y, x, y, line);
    before_x = x;
    before_y = y;
  }
}

}  // namespace

std::string chart(const std::string& title, const std::vector<ChartLine>& lines, const ChartStyle& style) {
  Range xs, ys;
  std::vector<std::vector<std::pair<double, double>>> points;
  for (const ChartLine& line : lines) {
    points.push_back(drawable(line, style.logarithmic));
    for (const auto& [x, y] : points.back()) {
      xs.include(x);
      ys.include(y);
    }
  }
  std::string text = title + "\n";
  if (xs.empty()) return text + "  nothing to draw\n";
  xs.widen();
  ys.widen();

  const bool braille = !style.ascii && (lines.size() == 1 || style.colours);
  const std::string letters = lines.size() == 1 ? "*" : "abcdefghijklmnopqrstuvwxyz";
  const int rows = std::max(style.rows, kLeastRows);
  std::vector<std::string> labels(static_cast<size_t>(rows));
  size_t width = 0;
  for (int r = 0; r < rows; ++r) {
    if (r % 3 != 0 && r != rows - 1) continue;
    if (r == rows - 2) continue;
    const double value = ys.at(1 - static_cast<double>(r) / (rows - 1));
    labels[static_cast<size_t>(r)] = label(style.logarithmic ? std::pow(10, value) : value);
    width = std::max(width, labels[static_cast<size_t>(r)].size());
  }
  const int columns = std::max(kLeastColumns, style.columns - static_cast<int>(width) - 3);
  Canvas canvas(columns, rows, braille);
  for (size_t i = 0; i < lines.size(); ++i) draw(canvas, points[i], xs, ys, static_cast<int>(i));

  if (lines.size() > 1)
    for (size_t i = 0; i < lines.size(); ++i)
      text += braille ? fmt::format("  \033[{}m━━\033[0m {}\n", kColours[i % std::size(kColours)], lines[i].name)
                      : fmt::format("  {} {}\n", letters[i % letters.size()], lines[i].name);
  for (int r = 0; r < rows; ++r) {
    const std::string& name = labels[static_cast<size_t>(r)];
    text += fmt::format(" {:>{}} {}{}\n", name, width,
                        style.ascii    ? (name.empty() ? "|" : "+")
                        : name.empty() ? "│"
                                       : "┤",
                        canvas.row(r, letters, style.colours));
  }
  std::string axis, below(static_cast<size_t>(columns), ' ');
  for (int c = 0; c < columns; ++c) axis += style.ascii ? "-" : "─";
  text += fmt::format(" {:{}} {}{}\n", "", width, style.ascii ? "+" : "└", axis);
  const auto place = [&](const std::string& name, int from) {
    below.replace(static_cast<size_t>(from), name.size(), name);
  };
  const auto step = [](double x) { return fmt::format("{:.0f}", x); };
  const std::string first = step(xs.least), middle = step(xs.at(0.5)), last = step(xs.most);
  place(first, 0);
  place(middle, (columns - static_cast<int>(middle.size())) / 2);
  place(last, columns - static_cast<int>(last.size()));
  return text + fmt::format(" {:{}}  {}\n", "", width, below);
}

}  // namespace elinvar
