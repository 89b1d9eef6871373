import { useLayoutEffect, useState } from "preact/hooks";

/** Width of an element and pixels a CSS pixel, kept up to date. */
export function useSize(ref: { current: HTMLElement | null }): { width: number; scale: number } {
  const [size, setSize] = useState({ width: 0, scale: 1 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const measure = () => setSize({ width: Math.floor(element.clientWidth), scale: window.devicePixelRatio || 1 });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [ref]);
  return size;
}
