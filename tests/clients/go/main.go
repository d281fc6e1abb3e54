// go-client URL: speaks to a director through net/http and checks what comes back.
// Prints one line for each behaviour that holds; exits 1 at the first that does not.
// The node behind URL answers /echo with the request's body, and /trailers with
// a chunked body and the trailer X-Checksum.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync"
)

func check(what string, ok bool, format string, args ...any) {
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: "+format+"\n", append([]any{what}, args...)...)
		os.Exit(1)
	}
	fmt.Println("ok", what)
}

func body(what string, response *http.Response, err error) []byte {
	if err != nil {
		check(what, false, "%v", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		check(what, false, "status %v, error %v", response.StatusCode, err)
	}
	return data
}

func main() {
	url := os.Args[1]
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}

	reused := 0
	for i := 0; i < 20; i++ {
		request, _ := http.NewRequest("GET", url+"/echo", nil)
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if info.Reused {
				reused++
			}
		}}
		response, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
		body("keep-alive", response, err)
	}
	check("keep-alive", reused == 19, "%d of 20 requests reused the connection", reused)

	big := make([]byte, 10<<20)
	rand.New(rand.NewSource(1)).Read(big)
	response, err := client.Post(url+"/echo", "application/octet-stream", bytes.NewReader(big))
	data := body("post-length", response, err)
	check("post-length", sha256.Sum256(data) == sha256.Sum256(big), "the body came back changed (%d bytes)", len(data))

	// A reader of unknown length makes net/http send chunks.
	response, err = client.Post(url+"/echo", "application/octet-stream", io.MultiReader(bytes.NewReader(big)))
	data = body("post-chunked", response, err)
	check("post-chunked", sha256.Sum256(data) == sha256.Sum256(big), "the body came back changed (%d bytes)", len(data))

	request, _ := http.NewRequest("POST", url+"/trailers", io.MultiReader(strings.NewReader("with trailers")))
	request.Trailer = http.Header{"X-Sent": nil}
	request.Header.Set("TE", "trailers")
	request.Trailer.Set("X-Sent", "by-go")
	response, err = client.Do(request)
	body("trailers", response, err)
	check("trailers", response.Trailer.Get("X-Checksum") != "", "no trailer came back: %v", response.Trailer)
	check("request-trailers", response.Trailer.Get("X-Sent") == "by-go", "the trailer sent came back as %v", response.Trailer)

	var hints textproto.MIMEHeader
	request, _ = http.NewRequest("GET", url+"/hints", nil)
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		if code == 103 {
			hints = header
		}
		return nil
	}}
	response, err = client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	body("early-hints", response, err)
	check("early-hints", hints.Get("Link") != "", "no 103 with a Link came: %v", hints)

	request, _ = http.NewRequest("POST", url+"/echo", strings.NewReader("after 100"))
	request.Header.Set("Expect", "100-continue")
	response, err = client.Do(request)
	check("expect-continue", string(body("expect-continue", response, err)) == "after 100", "wrong body")

	response, err = client.Head(url + "/echo")
	check("head", len(body("head", response, err)) == 0 && response.ContentLength >= 0, "length %d", response.ContentLength)

	var group sync.WaitGroup
	failures := make(chan string, 64)
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for i := 0; i < 50; i++ {
				text := fmt.Sprintf("worker %d request %d", worker, i)
				response, err := client.Post(url+"/echo", "text/plain", strings.NewReader(text))
				if err != nil {
					failures <- err.Error()
					return
				}
				data, err := io.ReadAll(response.Body)
				response.Body.Close()
				if err != nil || string(data) != text {
					failures <- fmt.Sprintf("%q came back as %q (%v)", text, data, err)
					return
				}
			}
		}(worker)
	}
	group.Wait()
	select {
	case failure := <-failures:
		check("concurrent", false, "%s", failure)
	default:
		check("concurrent", true, "")
	}
}
