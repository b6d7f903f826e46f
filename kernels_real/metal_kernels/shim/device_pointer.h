// `device T*` as a class: it counts the elements that are loaded and stored, each access by each thread one, and
// ends the launch at an index outside its buffer.
#pragma once
#include "launch.h"
#include <type_traits>

namespace metal_shim {

// A buffer that the host has bound; shim.py knows this layout.
struct Buffer {
    const char* name;
    void* data;
    int64_t length, loads, stores;  // elements
};

// What p[i] is: a load where it is read, a store where it is assigned to.
template <class T>
class Element {
public:
    Element(Buffer& buffer, T& value) : buffer_(buffer), value_(value) {}
    operator T() const { return ++buffer_.loads, value_; }
    Element& operator=(T value) { return ++buffer_.stores, value_ = value, *this; }
    Element& operator=(const Element& other) { return *this = T(other); }
    Element& operator+=(T value) { return *this = T(*this) + value; }

private:
    Buffer& buffer_;
    T& value_;
};

template <class T>
class device_pointer {
public:
    explicit device_pointer(Buffer& buffer, int64_t first = 0) : buffer_(&buffer), first_(first) {}

    device_pointer operator+(int64_t elements) const { return device_pointer(*buffer_, first_ + elements); }

    auto operator[](int64_t i) const {
        const int64_t index = first_ + i;
        if (index < 0 || index >= buffer_->length) out_of_bounds(buffer_->name, index, buffer_->length);
        T& value = static_cast<T*>(buffer_->data)[index];
        if constexpr (std::is_const_v<T>)
            return ++buffer_->loads, std::remove_const_t<T>(value);
        else
            return Element<T>(*buffer_, value);
    }

private:
    Buffer* buffer_;
    int64_t first_;
};

}  // namespace metal_shim
