// Browsers start no workers for pages that are opened as files. There, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      this.ready = new Promise((done) => {
        script.onload = done;
        script.onerror = () => this.onerror?.(new Event("error"));
      });
      inside.document.head.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow?.onmessage?.({ data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
