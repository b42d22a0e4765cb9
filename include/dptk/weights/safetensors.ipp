#pragma once

#include "dptk/weights/safetensors.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/input_file.hpp"
#include "dptk/weights/detail/safetensors_header.hpp"

namespace DPTK_NAMESPACE {

struct SafetensorsFile::File : detail::InputFile {
    using InputFile::InputFile;
};

DPTK_INLINE SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)), file_(std::make_unique<File>(path_)) {
    const auto fail = [&](std::size_t offset, std::string_view problem) {
        detail::throw_bad_safetensors(path_, offset, problem);
    };
    const std::size_t size = file_->size();
    std::uint64_t length = 0;
    constexpr std::uint64_t longest = 100'000'000;
    if (file_->read(&length, sizeof length, 0) < sizeof length)
        fail(size, "expected the length of a safetensors header, found the end of the file");
    std::array<char, 4> magic{};
    std::memcpy(magic.data(), &length, magic.size());
    if (magic[0] == 'P' && magic[1] == 'K')
        fail(0,
             "expected a safetensors file, found a ZIP archive, as torch.save() writes it (.pth): "
             "scripts/convert-weights converts it");
    if (length > longest || length > size - sizeof length)
        fail(0, detail::text("expected the length of a safetensors header, at most ", longest,
                             " and within the file, found ", length));
    std::string header(static_cast<std::size_t>(length), '\0');
    const std::size_t got = file_->read(header.data(), header.size(), sizeof length);
    if (got < header.size()) fail(sizeof length + got, "the file ends within its header");
    detail::SafetensorsHeader parsed =
        detail::parse_safetensors_header(path_, header, size - sizeof length - header.size());
    metadata_ = std::move(parsed.metadata);
    entries_ = std::move(parsed.entries);
    unreadable_ = std::move(parsed.unreadable);
    for (std::size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

DPTK_INLINE SafetensorsFile::~SafetensorsFile() = default;
DPTK_INLINE SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
DPTK_INLINE SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

DPTK_INLINE const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &entries_[found->second];
}

DPTK_INLINE void SafetensorsFile::read(const SafetensorsEntry& entry, const Buffer& to) const {
    if (to.count != entry.count)
        throw ArgumentError(detail::text(path_.string(), ": tensor \"", entry.name, "\" has ", entry.count,
                                         " elements; expected memory for as many, found ", to.count));
    std::vector<std::byte> converted;
    void* memory = to.data;
    if (to.dtype != entry.dtype) {
        if (!is_floating(to.dtype) || !is_floating(entry.dtype))
            throw ArgumentError(detail::text(path_.string(), ": tensor \"", entry.name,
                                             "\": cannot convert elements from ", dtype_name(entry.dtype),
                                             " to ", dtype_name(to.dtype)));
        converted.resize(entry.bytes());
        memory = converted.data();
    }
    const std::size_t got = file_->read(memory, entry.bytes(), entry.offset);
    if (got < entry.bytes())
        detail::throw_bad_safetensors(path_, entry.offset + got, "the file has become shorter");
    if (to.dtype != entry.dtype) detail::convert(to, {memory, entry.count, entry.dtype});
}

}  // namespace DPTK_NAMESPACE
