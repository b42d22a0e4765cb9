#pragma once

#include "dptk/weights/safetensors_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/replacement_file.hpp"
#include "dptk/weights/detail/safetensors_types.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Returns the header's text. Throws ArgumentError.
[[nodiscard]] DPTK_INLINE std::string safetensors_header(const std::filesystem::path& path,
                                                         std::span<const SafetensorsEntry> tensors,
                                                         const std::map<std::string, std::string>& metadata) {
    std::set<std::string_view> names{"__metadata__"};
    std::string header = "{";
    try {
        if (!metadata.empty()) header += "\"__metadata__\":" + nlohmann::json(metadata).dump() + ',';
        std::size_t end = 0;
        for (const SafetensorsEntry& tensor : tensors) {
            const auto fail = [&](std::string_view problem) {
                throw ArgumentError(text(path.string(), ": tensor \"", tensor.name, "\" ", problem));
            };
            const auto* const type =
                std::find_if(safetensors_types.begin(), safetensors_types.end(),
                             [&](const SafetensorsType& one) { return one.dtype == tensor.dtype; });
            if (!names.insert(tensor.name).second) fail("has a name that is another tensor's, or reserved");
            if (element_count(tensor.shape) != tensor.count)
                fail(text("has ", tensor.count, " elements, but the shape ", shape_text(tensor.shape)));
            if (type == safetensors_types.end())
                fail(text("is of ", dtype_name(tensor.dtype), ", for which the format has no name"));
            const std::size_t begin = end;
            end += tensor.bytes();
            header += nlohmann::json(tensor.name).dump() + ":{\"dtype\":\"";
            header += type->name;
            header += "\",\"shape\":" + nlohmann::json(tensor.shape).dump() +
                      text(",\"data_offsets\":[", begin, ',', end, "]},");
        }
    } catch (const nlohmann::json::type_error&) {
        throw ArgumentError(text(path.string(), ": expected names and metadata in UTF-8"));
    }
    if (header.size() > 1) header.pop_back();
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return header;
}

}  // namespace detail

DPTK_INLINE SafetensorsWriter::SafetensorsWriter(std::filesystem::path path,
                                                 std::vector<SafetensorsEntry> tensors,
                                                 const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), tensors_(std::move(tensors)) {
    const std::string header = detail::safetensors_header(path_, tensors_, metadata);
    const std::uint64_t length = header.size();
    file_ = std::make_unique<detail::ReplacementFile>(path_);
    file_->write(&length, sizeof length);
    file_->write(header.data(), header.size());
}

DPTK_INLINE SafetensorsWriter::~SafetensorsWriter() = default;

DPTK_INLINE void SafetensorsWriter::append(const Buffer& data) {
    if (next_ == tensors_.size())
        throw ArgumentError(detail::text(path_.string(), ": append() after the last tensor"));
    const SafetensorsEntry& tensor = tensors_[next_];
    if (data.dtype != tensor.dtype || data.count != tensor.count)
        throw ArgumentError(detail::text(
            path_.string(), ": append(): expected ", tensor.count, " elements of ", dtype_name(tensor.dtype),
            " of tensor \"", tensor.name, "\", got ", data.count, " of ", dtype_name(data.dtype)));
    file_->write(data.data, data.bytes());
    ++next_;
}

DPTK_INLINE void SafetensorsWriter::complete() {
    if (next_ != tensors_.size())
        throw ArgumentError(detail::text(path_.string(), ": complete() before tensor \"",
                                         tensors_[next_].name, "\" is written"));
    file_->complete();
}

DPTK_INLINE void write_safetensors(const std::filesystem::path& path,
                                   std::span<const SafetensorsTensor> tensors,
                                   const std::map<std::string, std::string>& metadata) {
    std::vector<const SafetensorsTensor*> order;
    for (const SafetensorsTensor& tensor : tensors) order.push_back(&tensor);
    // The format's recommended order: tensors of larger elements first, then by name.
    std::stable_sort(order.begin(), order.end(), [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
        const std::size_t one = a->data.element_size(), other = b->data.element_size();
        return one != other ? one > other : a->name < b->name;
    });
    std::vector<SafetensorsEntry> entries;
    for (const SafetensorsTensor* tensor : order)
        entries.push_back({tensor->name, tensor->data.dtype, tensor->shape, 0, tensor->data.count});
    SafetensorsWriter writer(path, std::move(entries), metadata);
    for (const SafetensorsTensor* tensor : order) writer.append(tensor->data);
    writer.complete();
}

}  // namespace DPTK_NAMESPACE
